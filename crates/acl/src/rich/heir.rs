//! What a new file gets from the list of its directory (RFC 8881, section 6.4.3; MS-DTYP, section
//! 2.5.3.4), and what the mode that it is created with takes off again.
//!
//! The umask plays no part where something is inherited, as with a default ACL, and the mode does:
//! who creates a file for himself alone gets one.

use super::{Ace, AceFlags, Control, Origin, RichAcl, Target};
use crate::view;

impl RichAcl {
    /// Whether files or directories that are made in a directory with this list inherit something.
    #[must_use]
    pub fn has_heirs(&self, directory: &Target) -> bool {
        [false, true].into_iter().any(|is_directory| {
            let heir = Target {
                is_directory,
                ..*directory
            };
            self.aces.iter().any(|ace| ace.of_heir(&heir).is_some())
        })
    }

    /// Whether what an heir inherits says anything about itself, so that the umask does not.
    pub(crate) fn decides_about(&self, heir: &Target) -> bool {
        let mut of_heir = self.aces.iter().filter_map(|ace| ace.of_heir(heir));
        of_heir.any(|ace| ace.is_effective())
    }

    /// The list of a file or directory that is made with `mode` in a directory with this list;
    /// `None` if it inherits nothing, so that its mode without the umask says all. Who makes one
    /// without a mode, as Windows does, gives all bits.
    ///
    /// # Panics
    /// If the list is a view: there the default ACL is what is inherited.
    #[must_use]
    pub fn inherited(&self, heir: &Target, mode: u16, umask: u16) -> Option<Self> {
        assert_eq!(
            self.origin,
            Origin::Rich,
            "of a POSIX ACL the default ACL is inherited"
        );
        let of_heir = self.aces.iter().filter_map(|ace| ace.of_heir(heir));
        let aces: Vec<_> = of_heir.collect();
        if aces.is_empty() {
            return None;
        }
        let is_spoken_of = aces.iter().any(Ace::is_effective);
        let mut acl = Self {
            aces,
            control: Control {
                auto_inherited: self.control.auto_inherited,
                ..Control::default()
            },
            ..Self::default()
        };
        if is_spoken_of {
            return Some(acl.under(mode, heir));
        }
        // All of it is for heirs of the heir: about itself its mode says everything.
        let own = view::of_mode(mode & !umask, heir.is_directory);
        acl.aces.splice(0..0, own);
        Some(acl)
    }
}

impl Ace {
    /// The entry as an heir has it.
    fn of_heir(&self, heir: &Target) -> Option<Self> {
        let has = |flag| self.flags.contains(flag);
        let here = self.flags.without(AceFlags::INHERITANCE);
        let flags = match heir.is_directory {
            false if has(AceFlags::FILE_INHERIT) => here,
            true if has(AceFlags::DIRECTORY_INHERIT) && has(AceFlags::NO_PROPAGATE) => here,
            true if has(AceFlags::DIRECTORY_INHERIT) => self.flags.without(AceFlags::INHERIT_ONLY),
            true if has(AceFlags::FILE_INHERIT) && !has(AceFlags::NO_PROPAGATE) => {
                self.flags.with(AceFlags::INHERIT_ONLY)
            }
            _ => return None,
        };
        Some(Self {
            flags: flags.with(AceFlags::INHERITED),
            ..self.clone()
        })
    }
}
