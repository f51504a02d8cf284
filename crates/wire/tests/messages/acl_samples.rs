//! Values of what is about rich ACLs, and the attributes of the file that they are of.

use base::{Attributes, FileKind, Principal, Timestamp};
use wire::message::*;

pub(crate) fn steps(target: Target, directory: Target) -> Vec<Step> {
    vec![
        Step::Access {
            target: target.clone(),
            rights: 5,
        },
        Step::Explain {
            target,
            directory: Some(directory),
            who: Principal::new(1000, 100, vec![4]),
            rights: 0x1_0000,
        },
    ]
}

pub(crate) fn replies() -> Vec<StepReply> {
    vec![
        StepReply::Access { is_rich: true },
        StepReply::Explained(Explanation {
            is_allowed: true,
            is_rich: true,
            rights: 0x1_0000,
            grounds: AclGrounds::RichEntry,
            entry: Some(AclEntryText {
                place: 300,
                text: "A::1000:d".into(),
            }),
            is_directorys: false,
        }),
    ]
}

pub(crate) fn summary() -> AclSummary {
    AclSummary {
        is_on: true,
        views: 1,
        judged: 2,
        refused: 3,
        kept: 4,
        edits: 5,
        became_rich: 6,
        went_back: 300,
        last: vec![AclLine("a line".into())],
    }
}

pub(crate) fn views() -> AclViews {
    AclViews {
        policy: "measured".into(),
        made: 1,
        used: 2,
        stored: 3,
        waiting: 300,
        unstored: AclUnstored {
            policy: 1,
            busy: 2,
            read_only: 3,
            full: 4,
            too_large: 5,
            protected: 6,
            failed: 7,
        },
        costs: Some(AclCosts {
            measured: 1_700_000_000,
            file_system: "xfs".into(),
            read_nanos: 50_000,
            points: vec![AclCost {
                entries: 21,
                stored_nanos: 110_000,
                converted_nanos: 55_000,
                storing_nanos: 70_000,
                stored_reads: 2,
                converted_reads: 1,
            }],
        }),
        work: Some(AclWork {
            work: AclViewWork::ConvertAll,
            dry_run: false,
            state: AclWorkState::Full,
            files: 8,
            changed: 9,
            failed: 10,
            files_max: 11,
        }),
    }
}

/// Those that a message is about, one of each.
pub(crate) fn asked() -> [AclViewsAsk; 5] {
    [
        AclViewsAsk::Show,
        AclViewsAsk::Store {
            policy: "never".into(),
            dry_run: false,
        },
        AclViewsAsk::Calibrate,
        AclViewsAsk::Work {
            work: AclViewWork::Compact,
            dry_run: true,
        },
        AclViewsAsk::Stop,
    ]
}

pub(crate) fn attributes() -> Attributes {
    Attributes {
        kind: FileKind::Directory,
        mode: 0o1755,
        links: 2,
        uid: 1000,
        gid: 100,
        inode: 0x0102_0304_0506_0708,
        device: 0,
        size: 4096,
        blocks: 8,
        block_size: 4096,
        accessed: Timestamp {
            seconds: -1,
            nanos: 999_999_999,
        },
        modified: Timestamp {
            seconds: 1_700_000_000,
            nanos: 5,
        },
        changed: Timestamp {
            seconds: 1_700_000_001,
            nanos: 0,
        },
        created: Some(Timestamp::default()),
        protected: true,
    }
}
