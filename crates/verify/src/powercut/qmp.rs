//! QEMU's control channel: one line of JSON for each command and each answer.

use super::PowercutError;
use base::limits::{VERIFY_END_TIME_MAX, VERIFY_POWERCUT_LINE_BYTES_MAX};
use rustix::fs::{Mode, OFlags, open};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The name of the socket in the directory of a guest.
pub(super) const SOCKET: &str = "qmp";

/// An open channel.
#[derive(Debug)]
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
}

fn garbled(what: &str) -> PowercutError {
    PowercutError::Guest(format!("QEMU says {what} where an answer should be"))
}

fn words(error: io::Error) -> PowercutError {
    PowercutError::Guest(format!("QEMU's control channel: {error}"))
}

impl Qmp {
    /// Connects to the guest in this directory; `None` if its socket is not there yet.
    pub(super) fn connect(directory: &Path) -> Result<Option<Self>, PowercutError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = open(directory, flags, Mode::empty()).map_err(|e| words(e.into()))?;
        // Names of sockets may have 107 bytes, those of directories more.
        let path = format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd());
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => return Ok(None),
                _ => return Err(words(error)),
            },
        };
        let limit = Some(VERIFY_END_TIME_MAX);
        stream.set_read_timeout(limit).map_err(words)?;
        let mut qmp = Self {
            stream: BufReader::new(stream),
        };
        if qmp.receive()?.get("QMP").is_none() {
            return Err(garbled("something else"));
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(Some(qmp))
    }

    /// Has a command carried out, and returns what it answers.
    pub(super) fn execute(
        &mut self,
        command: &str,
        arguments: Value,
    ) -> Result<Value, PowercutError> {
        let line = json!({"execute": command, "arguments": arguments});
        let stream = self.stream.get_mut();
        stream
            .write_all(format!("{line}\n").as_bytes())
            .map_err(words)?;
        loop {
            let mut answer = self.receive()?;
            if let Some(error) = answer.get("error") {
                let why = error["desc"].as_str().unwrap_or_default();
                return Err(PowercutError::Guest(format!("QEMU: {command}: {why}")));
            }
            // Events come at any time.
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    /// What state the machine is in: `running`, `inmigrate`.
    pub(super) fn status(&mut self) -> Result<String, PowercutError> {
        let status = self.execute("query-status", json!({}))?;
        let status = status["status"].as_str();
        status
            .map(str::to_owned)
            .ok_or_else(|| garbled("no status"))
    }

    fn receive(&mut self) -> Result<Value, PowercutError> {
        let mut line = String::new();
        let most = VERIFY_POWERCUT_LINE_BYTES_MAX;
        let read = Read::by_ref(&mut self.stream)
            .take(most)
            .read_line(&mut line);
        if read.map_err(words)? == 0 {
            return Err(PowercutError::Guest("QEMU has ended".to_owned()));
        }
        serde_json::from_str(&line).map_err(|_| garbled("something that is no JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn answers_are_told_from_events_and_errors() {
        let directory = std::env::temp_dir().join(format!("qmp-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        assert!(Qmp::connect(&directory).unwrap().is_none());
        let listener = UnixListener::bind(directory.join(SOCKET)).unwrap();
        let served = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut stream = stream;
            let mut say = |text: &str| stream.write_all(format!("{text}\r\n").as_bytes()).unwrap();
            say(r#"{"QMP": {"version": {}}}"#);
            let mut heard = Vec::new();
            for answer in [
                r#"{"return": {}}"#,
                "{\"event\": \"RESUME\"}\r\n{\"return\": {\"status\": \"running\"}}",
                r#"{"error": {"class": "GenericError", "desc": "no disk"}}"#,
            ] {
                heard.push(lines.next().unwrap().unwrap());
                say(answer);
            }
            heard
        });
        let mut qmp = Qmp::connect(&directory).unwrap().unwrap();
        assert_eq!(qmp.status().unwrap(), "running");
        let error = qmp.execute("migrate", json!({"uri": "x"})).unwrap_err();
        assert_eq!(error.to_string(), "QEMU: migrate: no disk");
        let heard = served.join().unwrap();
        assert_eq!(heard[0], r#"{"arguments":{},"execute":"qmp_capabilities"}"#);
        assert!(qmp.status().is_err(), "nobody is there any more");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
