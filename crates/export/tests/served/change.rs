//! Changes of several attributes at once, which no local call makes.

use crate::common::{Served, is_root};
use base::{AttributeChange, FsError, Principal, SetTime, Timestamp};
use export::{Access, OpenOptions};

const OLD: Timestamp = Timestamp {
    seconds: -5,
    nanos: 999_999_999,
};

#[test]
fn the_parts_of_a_change_survive_each_other() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    std::fs::write(served.path.join("f"), "text").unwrap();
    let handle = served.find("f").handle;
    let change = AttributeChange {
        mode: Some(0o6755),
        uid: Some(2001),
        gid: Some(3001),
        size: Some(2),
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::To(OLD)),
    };
    let (root, worker) = (Principal::root(), &served.worker);
    let after = served
        .export
        .set_attributes(worker, &root, &handle, &change, None)
        .unwrap();
    assert_eq!((after.mode, after.uid, after.gid), (0o6755, 2001, 3001));
    assert_eq!((after.size, after.modified), (2, OLD));
    assert!(after.accessed.seconds > 1_500_000_000);
    let nothing = AttributeChange::default();
    let same = served
        .export
        .set_attributes(worker, &root, &handle, &nothing, None);
    assert_eq!(same, Ok(after));
}

#[test]
fn a_change_that_is_for_owners_only_in_part_is_refused_as_a_whole() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    crate::common::shell(&format!(
        "cd {} && printf text > f && chmod 666 f",
        served.path.display()
    ));
    let handle = served.find("f").handle;
    let (worker, user) = (&served.worker, Principal::alone(2001, 2001));
    let set = |change: &AttributeChange| {
        served
            .export
            .set_attributes(worker, &user, &handle, change, None)
            .map(|after| after.size)
    };
    let size = AttributeChange {
        size: Some(0),
        ..Default::default()
    };
    for part in [
        AttributeChange {
            mode: Some(0o600),
            ..size.clone()
        },
        AttributeChange {
            gid: Some(2001),
            ..size.clone()
        },
        AttributeChange {
            modified: Some(SetTime::To(OLD)),
            ..size.clone()
        },
    ] {
        assert_eq!(set(&part), Err(FsError::NotPermitted), "{part:?}");
        assert_eq!(std::fs::read(served.path.join("f")).unwrap(), b"text");
    }
    // What an open with O_TRUNC asks for is for everybody who may write.
    let now = Some(SetTime::Now);
    assert_eq!(
        set(&AttributeChange {
            accessed: now,
            modified: now,
            ..size
        }),
        Ok(0)
    );
}

#[test]
fn numbers_that_mean_something_special_to_the_kernel_are_refused() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    std::fs::write(served.path.join("f"), "text").unwrap();
    let node = served.find("f");
    let (root, worker) = (Principal::root(), &served.worker);
    // The kernel's "now" and "leave it", and the smallest number that is not a nanosecond.
    for nanos in [(1 << 30) - 1, (1 << 30) - 2, 1_000_000_000] {
        let modified = Some(SetTime::To(Timestamp { seconds: 0, nanos }));
        let change = AttributeChange {
            modified,
            ..Default::default()
        };
        let answer = served
            .export
            .set_attributes(worker, &root, &node.handle, &change, None);
        assert_eq!(answer, Err(FsError::Invalid));
    }
    for change in [
        AttributeChange {
            uid: Some(u32::MAX),
            ..Default::default()
        },
        AttributeChange {
            gid: Some(u32::MAX),
            ..Default::default()
        },
    ] {
        let answer = served
            .export
            .set_attributes(worker, &root, &node.handle, &change, None);
        assert_eq!(answer, Err(FsError::Invalid));
    }
    let change = AttributeChange {
        size: Some(u64::MAX),
        ..Default::default()
    };
    let answer = served
        .export
        .set_attributes(worker, &root, &node.handle, &change, None);
    assert_eq!(answer, Err(FsError::FileTooLarge));
    let now = served.export.attributes(worker, &root, &node.handle);
    assert_eq!(now, Ok(node.attributes));
}

#[test]
fn an_open_file_is_cut_by_the_right_of_its_opening() {
    if !is_root() {
        return;
    }
    let served = Served::temporary();
    crate::common::shell(&format!(
        "cd {} && printf text > f && chmod 666 f",
        served.path.display()
    ));
    let handle = served.find("f").handle;
    let (worker, user, export) = (&served.worker, Principal::alone(2001, 2001), &served.export);
    let writing = OpenOptions::new(Access::Write);
    let file = export.open_file(worker, &user, &handle, writing).unwrap();
    let mode = AttributeChange {
        mode: Some(0o600),
        ..Default::default()
    };
    export
        .set_attributes(worker, &Principal::root(), &handle, &mode, None)
        .unwrap();
    let cut = AttributeChange {
        size: Some(1),
        ..Default::default()
    };
    let by_name = export.set_attributes(worker, &user, &handle, &cut, None);
    assert_eq!(by_name, Err(FsError::AccessDenied));
    let by_file = export.set_attributes(worker, &user, &handle, &cut, Some(&file));
    assert_eq!(by_file.map(|after| after.size), Ok(1));
}
