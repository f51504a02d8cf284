//! Values of what is about rich ACLs.

use base::Principal;
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
