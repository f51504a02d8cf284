//! The archive from which a kernel makes its first file system.
//!
//! Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst. Of the formats
//! that it takes this is "newc": a header of hexadecimal digits, the name, the content, each filled
//! up to a multiple of four bytes.

/// What an entry is, in its mode.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTERS: u32 = 0o020_600;
/// The entry that ends an archive.
const END: &str = "TRAILER!!!";

/// An archive that is being made.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory; those above it must be there.
    pub(super) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, (0, 0), &[]);
    }

    /// Adds a file that can be run.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, (0, 0), content);
    }

    /// Adds a character device with these numbers.
    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTERS, (major, minor), &[]);
    }

    /// The whole archive.
    #[must_use]
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(END, 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let content_len = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_len = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        // Number, mode, user, group, links, time, length, device of it (2), device that it is (2),
        // length of the name with its NUL, checksum, which this format has not.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            content_len,
            0,
            0,
            device.0,
            device.1,
            name_len,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.fill_up();
        self.bytes.extend(content);
        self.fill_up();
    }

    fn fill_up(&mut self) {
        let len = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_as_the_kernel_describes_it() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/sh", b"hello");
        archive.device("dev/console", 5, 1);
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        let first = "070701\
            00000001000041ed00000000000000000000000100000000000000000000000000000000\
            00000000000000000000000400000000bin\0";
        assert!(text.starts_with(first), "{text}");
        // The header and the name have 114 bytes, filled up to 116.
        assert_eq!(&bytes[116..122], b"070701");
        assert!(text.contains("bin/sh\0\0\0\0hello\0\0\x00070701"), "{text}");
        assert!(text.contains("0000000500000001"), "{text}");
        assert!(text.ends_with("TRAILER!!!\0\0\0\0") && bytes.len().is_multiple_of(4));
    }
}
