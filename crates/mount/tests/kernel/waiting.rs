//! Waiting: for locks, for answers that do not come; and signals in the midst of it.

use crate::mounted::{Mounted, eventually, mounted};
use mount::kernel::LockFamily;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::process::{Child, Command, Stdio};

fn create(mounted: &Mounted, name: &str) -> File {
    let path = mounted.path(name);
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// A Perl program (a part of every Debian) that runs in the mount. Perl's handlers interrupt system
/// calls; a shell's cannot.
fn perl(mounted: &Mounted, program: &str) -> Child {
    Command::new("perl")
        .args(["-MFcntl=:flock,:DEFAULT,:mode", "-e", program])
        .current_dir(mounted.point.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn said(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn finished(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// Perl for a struct flock of 64 bits: an exclusive lock on everything.
const EXCLUSIVE: &str = "my $lock = pack('s s x4 q q l x4', F_WRLCK, 0, 0, 0, 0);";

#[test]
fn flock_and_fcntl_know_nothing_of_each_other() {
    let Some(mounted) = mounted() else { return };
    let (first, second) = (create(&mounted, "file"), create(&mounted, "file"));
    flock(&first, FlockOperation::LockExclusive).unwrap();
    let busy = flock(&second, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(busy, Err(rustix::io::Errno::AGAIN));
    fcntl_lock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
    {
        let state = mounted.memory.state();
        let held = [LockFamily::Flock, LockFamily::Posix].map(|family| state.locks.held(family));
        assert_eq!(held, [1, 1]);
    }
    let other = perl(
        &mounted,
        &format!("{EXCLUSIVE} open F, '+<', 'file'; print fcntl(F, F_SETLK, $lock) ? 'got' : $!;"),
    );
    assert_eq!(said(other), "Resource temporarily unavailable");
    // Closing ends flock with the last descriptor, fcntl with any.
    drop(first);
    let held = || mounted.memory.state().locks.held(LockFamily::Flock);
    eventually("the flock is released", || held() == 0);
    flock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn a_lock_is_waited_for() {
    let Some(mounted) = mounted() else { return };
    let holder = create(&mounted, "file");
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let waiter = perl(
        &mounted,
        "open F, '+<', 'file'; print flock(F, LOCK_EX) ? 'got it' : $!;",
    );
    eventually("the lock is wanted", || {
        mounted.memory.state().locks.waiting() == 1
    });
    flock(&holder, FlockOperation::Unlock).unwrap();
    assert_eq!(said(waiter), "got it");
}

#[test]
fn a_signal_ends_waiting_for_a_lock() {
    let Some(mounted) = mounted() else { return };
    let holder = create(&mounted, "file");
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    fcntl_lock(&holder, FlockOperation::LockExclusive).unwrap();
    for wait in ["flock(F, LOCK_EX)", "fcntl(F, F_SETLKW, $lock)"] {
        let program = format!(
            "{EXCLUSIVE} $SIG{{TERM}} = sub {{}}; open F, '+<', 'file'; \
             print {wait} ? 'got it' : $!;"
        );
        let waiter = perl(&mounted, &program);
        eventually("the lock is wanted", || {
            mounted.memory.state().locks.waiting() == 1
        });
        signal(&waiter, Signal::TERM);
        assert_eq!(said(waiter), "Interrupted system call", "{wait}");
        assert_eq!(mounted.memory.state().locks.waiting(), 0);
    }
}

#[test]
fn a_process_that_waits_for_a_dead_server_can_be_killed() {
    let Some(mounted) = mounted() else { return };
    for (name, end) in [("stuck1", Signal::TERM), ("stuck2", Signal::KILL)] {
        let node = mounted.memory.state().tree.put(name, b"");
        assert!(mounted.exists(name));
        mounted.notifier.inval_inode(node, -1, 0).unwrap();
        let mut waiter = perl(
            &mounted,
            &format!("$SIG{{USR1}} = sub {{}}; stat '{name}';"),
        );
        eventually("the server is asked", || mounted.memory.stuck() == 1);
        // A signal that ends nothing must not make stat(2) fail.
        signal(&waiter, Signal::USR1);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(
            !finished(&mut waiter) && mounted.memory.stuck() == 1,
            "{name}"
        );
        // One that does: it was told of the first signal only, so it looks again by itself.
        signal(&waiter, end);
        eventually("the process ends", || {
            mounted.memory.release_dying();
            finished(&mut waiter)
        });
    }
}

#[test]
fn a_killed_process_is_told_of_at_once() {
    let Some(mounted) = mounted() else { return };
    let node = mounted.memory.state().tree.put("stuck", b"");
    assert!(mounted.exists("stuck"));
    mounted.notifier.inval_inode(node, -1, 0).unwrap();
    let mut waiter = perl(&mounted, "stat 'stuck';");
    eventually("the server is asked", || mounted.memory.stuck() == 1);
    signal(&waiter, Signal::TERM);
    eventually("the process ends", || finished(&mut waiter));
}
