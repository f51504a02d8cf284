//! What a log is about, in lines: what is needed to judge its states again.

use super::{CrashError, Target};
use crate::actor::check_mount_options;

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The file system.
    pub target: Target,
    /// How it was mounted.
    pub mount_options: String,
    /// The workload by name.
    pub workload: String,
    /// From which the workload is made.
    pub seed: u64,
}

impl Subject {
    pub(super) fn to_text(&self) -> String {
        let (target, options) = (self.target.name(), &self.mount_options);
        let (workload, seed) = (&self.workload, self.seed);
        format!("target={target}\nmount-options={options}\nworkload={workload}\nseed={seed}\n")
    }

    /// Reads what [`Self::to_text`] wrote, or somebody else, whose mount options are not trusted.
    ///
    /// # Errors
    /// [`CrashError::Subject`]; [`CrashError::MountOptions`] if these name another device.
    pub fn from_text(text: &str) -> Result<Self, CrashError> {
        let wrong = || CrashError::Subject(text.chars().take(200).collect());
        let value = |key: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        };
        let mount_options = value("mount-options").ok_or_else(wrong)?;
        check_mount_options(mount_options).map_err(CrashError::MountOptions)?;
        Ok(Self {
            target: value("target")
                .and_then(Target::judged_by_name)
                .ok_or_else(wrong)?,
            mount_options: mount_options.to_owned(),
            workload: value("workload").ok_or_else(wrong)?.to_owned(),
            seed: value("seed")
                .and_then(|seed| seed.parse().ok())
                .ok_or_else(wrong)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_read_as_it_was_written() {
        let subject = Subject {
            target: Target::Btrfs,
            mount_options: "a=b,c".into(),
            workload: "two:5".into(),
            seed: 7,
        };
        assert_eq!(Subject::from_text(&subject.to_text()).unwrap(), subject);
        assert!(Subject::from_text("target=fat\nseed=1").is_err());
        assert!(Subject::from_text("").is_err());
    }

    #[test]
    fn a_log_that_would_have_another_device_opened_is_refused() {
        let text = "target=xfs\nmount-options=noatime,logdev=/dev/sdb1\nworkload=pages\nseed=1\n";
        let error = Subject::from_text(text).unwrap_err();
        assert!(matches!(&error, CrashError::MountOptions(why) if why.contains("logdev")));
    }
}
