//! Mount options that a run may be given.
//!
//! A run uses devices that it has made itself. The options of a log are somebody else's words, and
//! some of those that file systems know name a second device, which they then open and write to
//! ([`DEVICES`]). With such an option a log that was sent would write to a disk of this machine, so
//! none of them gets as far as mount(2).

/// Options whose value is another device: of XFS, ext3 and ext4, reiserfs and JFS, btrfs, and of
/// mount itself.
const DEVICES: [&str; 8] = [
    "logdev",
    "rtdev",
    "journal_dev",
    "journal_path",
    "jdev",
    "device",
    "loop",
    "source",
];

/// Refuses options, with commas between, that name a device, or anything by its path.
///
/// # Errors
/// In words: which one, why, and what to do.
pub fn check_mount_options(options: &str) -> Result<(), String> {
    let is_refused = |option: &&str| {
        let name = option.split('=').next().unwrap_or_default().trim();
        DEVICES.contains(&name) || option.contains('/')
    };
    match options.split(',').find(is_refused) {
        None => Ok(()),
        Some(option) => {
            let option: String = option.chars().take(100).collect();
            Err(format!(
                "the mount option {option} names a device or a path, and a run may use only what \
                 it has made itself: leave it out, and do not trust a log that has it"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_another_device_is_refused() {
        for options in [
            "logdev=/dev/sdb1",
            "noatime,rtdev=sdb",
            "journal_path=/dev/sdb",
            "journal_dev=2065",
            "device=/dev/sdb,ro",
            "subvol=/x",
            "loop",
            "source=sdb",
            " logdev = sdb",
        ] {
            let why = check_mount_options(options).unwrap_err();
            assert!(why.contains("leave it out"), "{options}: {why}");
        }
        for options in [
            "",
            "nobarrier",
            "noatime,data=journal,commit=1",
            "ro,rescue=nologreplay",
            "logbufs=8,logbsize=32k",
        ] {
            assert_eq!(check_mount_options(options), Ok(()), "{options}");
        }
    }
}
