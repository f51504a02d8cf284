//! A list that says by itself what a list under limits says, for those who know no limits: NFSv4
//! clients and Windows. If somebody writes it back, the limits have become entries.
//!
//! Every decision is the same but one: an owner who has something only because he is in a group,
//! and whose group was narrowed, has it no more. No entry speaks of owners who are in a group.

use super::limits::{Class, Share, plain};
use super::{Ace, AceFlags, AceKind, RichAcl, Rights, Target, Who};
use std::collections::BTreeSet;

impl RichAcl {
    /// The entries that say everything, in the order in which they are read.
    #[must_use]
    pub fn effective(&self, target: &Target) -> Vec<Ace> {
        let Some(limits) = &self.limits else {
            return self.aces.clone();
        };
        let share = |class| limits.share(class, &self.aces, target);
        let mut baked = Baked {
            owner: share(Class::Owner),
            group: share(Class::Group),
            others: share(Class::Others),
            named: self.named(target),
            aces: Vec::new(),
        };
        baked.owners_share();
        for ace in &self.aces {
            match ace.kind {
                _ if !ace.is_effective() => baked.aces.push(ace.clone()),
                AceKind::Allow => baked.allow(ace, target),
                _ if ace.who == Who::Everyone => baked.deny_everyone(ace),
                _ => baked.aces.push(ace.clone()),
            }
        }
        baked.others_share();
        baked.aces
    }

    /// All of the group's class but those who are nothing else than in the owning group.
    fn named(&self, target: &Target) -> Vec<Who> {
        let effective = self.aces.iter().filter(|ace| ace.is_effective());
        let named = effective.map(|ace| plain(&ace.who, target));
        let named = named.filter(|who| matches!(who, Who::User(_) | Who::Group(_)));
        let named: BTreeSet<&Who> = named.collect();
        named.into_iter().cloned().collect()
    }
}

struct Baked {
    owner: Share,
    group: Share,
    others: Share,
    named: Vec<Who>,
    aces: Vec<Ace>,
}

impl Baked {
    fn push(&mut self, kind: AceKind, who: Who, rights: Rights) {
        if !rights.is_empty() {
            self.aces.push(Ace::new(kind, who, rights));
        }
    }

    /// The same for each of the group's class.
    fn push_group(&mut self, kind: AceKind, rights: Rights) {
        for who in [Who::OwningGroup].into_iter().chain(self.named.clone()) {
            self.push(kind, who, rights);
        }
    }

    /// An entry with fewer rights here and all of them for its heirs.
    fn push_within(&mut self, ace: &Ace, rights: Rights) {
        let kept = ace.rights & rights;
        if kept == ace.rights {
            self.aces.push(ace.clone());
            return;
        }
        let here = ace.flags.without(AceFlags::INHERITANCE);
        if ace.is_inheritable() {
            self.aces.push(Ace {
                flags: ace.flags.with(AceFlags::INHERIT_ONLY),
                ..ace.clone()
            });
        }
        self.aces.push(Ace {
            flags: here,
            rights: kept,
            ..ace.clone()
        });
    }

    /// Before everything else: what the owner has, and what he has not.
    fn owners_share(&mut self) {
        let has_not = !(self.owner.given | self.owner.reachable);
        self.push(AceKind::Allow, Who::Owner, self.owner.given);
        self.push(AceKind::Deny, Who::Owner, has_not);
    }

    /// An entry of the list that allows.
    fn allow(&mut self, ace: &Ace, target: &Target) {
        match plain(&ace.who, target) {
            Who::OwningGroup | Who::User(_) | Who::Group(_) => {
                self.push_within(ace, self.group.reachable);
            }
            Who::Everyone => self.allow_everyone(ace),
            _ => self.aces.push(ace.clone()),
        }
    }

    /// What everybody is allowed is something else for each class.
    fn allow_everyone(&mut self, ace: &Ace) {
        let (group, others) = (self.group.reachable, self.others.reachable);
        let rights = ace.rights;
        if !group.contains(rights) || !others.contains(rights) {
            self.push(AceKind::Allow, Who::Owner, rights);
            self.push_group(AceKind::Deny, rights - group);
            self.push_group(AceKind::Allow, (rights & group) - others);
        }
        self.push_within(ace, others);
    }

    /// What everybody is denied, others may have been given.
    fn deny_everyone(&mut self, ace: &Ace) {
        let given = ace.rights & self.others.given;
        self.push(AceKind::Deny, Who::Owner, given);
        self.push_group(AceKind::Deny, given);
        self.push_within(ace, !given);
    }

    /// Behind everything else: what others are given, and nobody else.
    fn others_share(&mut self) {
        let given = self.others.given;
        self.push(AceKind::Deny, Who::Owner, given);
        self.push_group(AceKind::Deny, given);
        self.push(AceKind::Allow, Who::Everyone, given);
    }
}
