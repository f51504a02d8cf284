//! A client of NBD that writes and flushes when a test wants it; without structured replies.

use bytes::{Buf, BufMut};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) struct Client(UnixStream);

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut said = Vec::new();
        said.put_u32(3);
        said.put_slice(b"IHAVEOPT");
        said.put_u32(1);
        said.put_u32(0);
        stream.write_all(&said).unwrap();
        let mut answer = [0; 18 + 10];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(b"NBDMAGICIHAVEOPT"));
        Self(stream)
    }

    /// Asks for something and waits for the answer; its number of error.
    fn ask(&mut self, kind: u16, offset: u64, len: u32, data: &[u8]) -> u32 {
        let mut request = Vec::new();
        request.put_u32(0x2560_9513);
        request.put_u16(0);
        request.put_u16(kind);
        request.put_u64(offset);
        request.put_u64(offset);
        request.put_u32(len);
        request.put_slice(data);
        self.0.write_all(&request).unwrap();
        let mut answer = [0; 16];
        self.0.read_exact(&mut answer).unwrap();
        let mut rest = &answer[..];
        assert_eq!(rest.get_u32(), 0x6744_6698);
        let errno = rest.get_u32();
        assert_eq!(rest.get_u64(), offset);
        errno
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        assert_eq!(self.ask(1, offset, data.len() as u32, data), 0);
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        assert_eq!(self.ask(0, offset, len, &[]), 0);
        let mut bytes = vec![0; len as usize];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn flush(&mut self) {
        assert_eq!(self.ask(3, 0, 0, &[]), 0);
    }
}
