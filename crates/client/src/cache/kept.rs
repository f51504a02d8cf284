//! What the kernel may keep of an inode's attributes: what it must be told when they change.

use base::Time;
use std::time::Duration;

/// Time after which no question of the kernel is still on its way here.
pub const ON_ITS_WAY_MAX: Duration = Duration::from_secs(1);

/// What is kept, in rising order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeps {
    /// Nothing: the kernel asks before it uses any.
    #[default]
    Nothing,
    /// Mode, owner, links and ACLs: what is left to the kernel when it has written to a file.
    Lasting,
    /// Size and times, too.
    All,
}

/// See the module's head.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    what: Keeps,
    /// Answers with something to keep.
    answers: u32,
    /// When the kernel was last told an ACL that no lease covered. It drops ACLs whenever it asks
    /// for attributes, but keeps them when it looks a name up (Linux 6.18); attributes that it then
    /// may keep would keep the ACL alive, too.
    loose_acl: Option<Time>,
}

impl Kept {
    /// What is kept at most, and the answers so far, for [`Self::on_dropped`].
    #[must_use]
    pub fn state(&self) -> (Keeps, u32) {
        (self.what, self.answers)
    }

    /// Whether attributes may be kept now.
    #[must_use]
    pub fn may_keep(&self) -> bool {
        self.loose_acl.is_none()
    }

    /// The kernel is about to be told what it may keep.
    pub fn on_answer(&mut self, what: Keeps) {
        self.what = self.what.max(what);
        self.answers = self.answers.wrapping_add(1);
    }

    /// The kernel is about to be told an ACL, or that there is none; `leased`: that will be true
    /// until the kernel hears otherwise.
    pub fn on_acl(&mut self, leased: bool, now: Time) {
        self.on_answer(Keeps::Lasting);
        if !leased {
            self.loose_acl = Some(now);
        }
    }

    /// The kernel asks for attributes. Before it did so it dropped its ACL, but the question may
    /// have waited while another one was answered.
    pub fn on_asked(&mut self, now: Time) {
        let before = |told: &Time| now.since(*told) > ON_ITS_WAY_MAX;
        self.loose_acl = self.loose_acl.filter(|told| !before(told));
    }

    /// The kernel is about to hear that it has written to the file.
    pub fn on_written(&mut self) {
        self.what = self.what.min(Keeps::Lasting);
    }

    /// The kernel has dropped what it had after so many answers.
    pub fn on_dropped(&mut self, answers: u32) {
        if self.answers == answers {
            (self.what, self.loose_acl) = (Keeps::Nothing, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(100);

    #[test]
    fn a_write_leaves_what_lasts_and_only_the_kernel_drops_that() {
        let mut kept = Kept::default();
        kept.on_written();
        assert_eq!(kept.state().0, Keeps::Nothing);
        kept.on_answer(Keeps::All);
        kept.on_written();
        let (what, answers) = kept.state();
        assert_eq!(what, Keeps::Lasting);
        kept.on_dropped(answers);
        assert_eq!(kept.state().0, Keeps::Nothing);
    }

    #[test]
    fn what_is_told_while_the_kernel_drops_what_it_had_is_kept() {
        let mut kept = Kept::default();
        kept.on_answer(Keeps::All);
        let (_, answers) = kept.state();
        kept.on_acl(false, NOW);
        kept.on_dropped(answers);
        assert_eq!(kept.state().0, Keeps::All);
        assert!(!kept.may_keep());
    }

    #[test]
    fn nothing_may_be_kept_beside_an_acl_that_no_lease_covered() {
        let mut kept = Kept::default();
        kept.on_acl(true, NOW);
        assert!(kept.may_keep());
        assert_eq!(kept.state().0, Keeps::Lasting);
        kept.on_acl(false, NOW);
        assert!(!kept.may_keep());
        // This question may have been on its way before the answer was.
        kept.on_asked(NOW + ON_ITS_WAY_MAX);
        assert!(!kept.may_keep());
        kept.on_asked(NOW + ON_ITS_WAY_MAX * 2);
        assert!(kept.may_keep());
        kept.on_acl(false, NOW);
        kept.on_dropped(kept.state().1);
        assert!(kept.may_keep());
    }
}
