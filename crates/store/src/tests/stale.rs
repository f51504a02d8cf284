//! A superblock that is older than any that a store leaves beside the newest one.

use super::world::{self, Model, Step};
use crate::layout::{PAGE_BYTES, SUPERBLOCK_OFFSETS};
use crate::{Core, Examination, Kind, Mend, Superblock};
use base::BlockDevice;
use sim::{CrashDisk, Image};
use std::sync::Arc;

fn findings(disk: &Arc<CrashDisk>, repair: bool) -> Vec<(Kind, Mend)> {
    let device: Arc<dyn BlockDevice> = disk.clone();
    let examination = Examination {
        options: world::options(),
        data: true,
        repair,
        give_up_log: false,
    };
    let report = examination.run(&device, &mut |_, _| {}).unwrap();
    report.findings.iter().map(|f| (f.kind, f.mend)).collect()
}

/// A disk after so many checkpoints more, with the superblock from before them in that place, how
/// far that is behind the newest one, and what the store has.
fn history(place: usize, checkpoints: u8) -> (Image, u64, Model) {
    let disk = world::formatted(5 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let mut model = Model::new();
    let mut work = |object: u8| {
        let write = Step::Write {
            object,
            offset: 0,
            len: 27_000,
            fill: object,
        };
        for step in [Step::Create(object), write, Step::Checkpoint] {
            world::apply(&mut store, &mut model, &step).unwrap();
        }
    };
    work(0);
    let mut page = vec![0; PAGE_BYTES as usize];
    disk.read_at(SUPERBLOCK_OFFSETS[place], &mut page).unwrap();
    (1..=checkpoints).for_each(|number| work(number % 6));
    disk.write_at(SUPERBLOCK_OFFSETS[place], &page).unwrap();
    let old = Superblock::decode(&page).unwrap().epoch;
    disk.read_at(SUPERBLOCK_OFFSETS[1 - place], &mut page)
        .unwrap();
    let newest = Superblock::decode(&page).unwrap().epoch;
    (disk.image(), newest.saturating_sub(old), model)
}

#[test]
fn an_old_superblock_is_told_of_and_replaced_and_costs_nothing() {
    let mut found = [0; 2];
    // After the most of them, the log was written over, and the pages of the old one used again.
    for (place, checkpoints) in (0..2).flat_map(|place| [1, 2, 3, 4, 60].map(|n| (place, n))) {
        let (image, behind, model) = history(place, checkpoints);
        let is_stale = behind > 1;
        found[usize::from(is_stale)] += 1;
        let expected = |mend| Vec::from_iter(is_stale.then_some((Kind::Superblock, mend)));
        let disk = Arc::new(CrashDisk::from_image(image.clone()));
        assert_eq!(findings(&disk, false), expected(Mend::Possible), "{behind}");
        assert_eq!(findings(&disk, true), expected(Mend::Done), "{behind}");
        let opened = Arc::new(CrashDisk::from_image(image));
        drop(Core::open(opened.clone(), world::options()).unwrap());
        for disk in [disk, opened] {
            assert_eq!(findings(&disk, false), [], "{behind}");
            let store = Core::open(disk, world::options()).unwrap();
            assert!(world::contents(&store).unwrap() == model, "{behind}");
        }
    }
    assert!(found[0] > 1 && found[1] > 4, "{found:?}");
}
