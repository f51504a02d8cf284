//! Values of what is about appends to files of parallel volumes.

use base::{Attributes, Extent};
use wire::message::*;

pub(crate) fn steps(file: impl Fn() -> FileRef) -> Vec<Step> {
    vec![
        Step::Place {
            file: file(),
            bytes: 4096,
        },
        Step::PlaceLeft {
            file: file(),
            place: 300,
        },
        Step::Stored {
            file: file(),
            generation: 300,
            end: 1 << 40,
            extent: Extent::new(300, 400),
            what: StoredWhat::Space,
            place: Some(500),
        },
        Step::GivePlaceUp {
            file: file(),
            place: 300,
        },
    ]
}

pub(crate) fn replies(attributes: Attributes) -> Vec<StepReply> {
    vec![
        StepReply::Placed {
            place: 500,
            generation: 300,
            offset: 1 << 40,
            attributes,
        },
        StepReply::PlaceLeft {
            generation: 300,
            parts: vec![Extent::new(300, 400), Extent::new(800, 100)],
        },
    ]
}
