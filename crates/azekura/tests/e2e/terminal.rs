//! What is asked on a terminal, and how the terminal is left.

use crate::common::{Run, run};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A terminal that nobody sits at.
pub(crate) struct Terminal {
    /// The side of keyboard and screen.
    person: File,
    /// The side of programs.
    program: File,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let person = person.unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        Self {
            person: person.into(),
            program: program.into(),
        }
    }

    /// Standard input for a program.
    pub(crate) fn input(&self) -> Stdio {
        self.program.try_clone().unwrap().into()
    }

    pub(crate) fn type_in(&self, text: &str) {
        (&self.person).write_all(text.as_bytes()).unwrap();
    }

    fn shows_what_is_typed(&self) -> bool {
        let modes = tcgetattr(&self.program).unwrap().local_modes;
        modes.contains(LocalModes::ECHO)
    }

    fn until_hidden(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.shows_what_is_typed() {
            assert!(Instant::now() < deadline, "the terminal goes on showing");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Everything that the screen got to show.
    fn screen(&self) -> String {
        // What is written now comes last.
        (&self.program).write_all(b"<end>").unwrap();
        let mut shown = Vec::new();
        while !shown.ends_with(b"<end>") {
            let mut more = [0; 256];
            let len = (&self.person).read(&mut more).unwrap();
            shown.extend(&more[..len]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    }
}

/// Runs `login` on the terminal while `act` is done to its process, once nothing is shown any more.
fn log_in(terminal: &Terminal, act: impl FnOnce(Pid) + Send) -> Run {
    let config = tempfile::tempdir().unwrap();
    let pid_file = config.path().join("pid");
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ >\"$1\"; exec \"$0\" login 127.0.0.1:1 -"])
        .arg(env!("CARGO_BIN_EXE_azekura"))
        .arg(&pid_file)
        .env("AZEKURA_CONFIG_DIR", config.path())
        .env_remove("RUST_LOG")
        .stdin(terminal.input());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            terminal.until_hidden();
            let pid = std::fs::read_to_string(&pid_file).unwrap();
            act(Pid::from_raw(pid.trim().parse().unwrap()).unwrap());
        });
        run(&mut command)
    })
}

#[test]
fn a_join_string_that_is_typed_is_not_shown() {
    let terminal = Terminal::new();
    let run = log_in(&terminal, |_| terminal.type_in("azk1-secret\n"));
    assert!(run.stderr.contains("join string"), "{run:?}");
    assert!(run.stderr.contains("AZ0203"), "{run:?}");
    assert!(terminal.shows_what_is_typed());
    assert_eq!(terminal.screen(), "\r\n<end>");
}

#[test]
fn an_interruption_leaves_the_terminal_as_it_was() {
    for (signal, key) in [(Signal::INT, "\u{1a}"), (Signal::TERM, "\u{1c}")] {
        let terminal = Terminal::new();
        let run = log_in(&terminal, |pid| {
            // Neither the key that stops nor the one that kills does anything.
            terminal.type_in(key);
            kill_process(pid, signal).unwrap();
        });
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        assert!(run.stderr.contains("AZ0004"), "{run:?}");
        assert!(terminal.shows_what_is_typed());
    }
}
