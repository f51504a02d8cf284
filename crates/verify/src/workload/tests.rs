//! Workloads make sense and are made again from their names.

use super::*;
use crate::oracle::Tree;
use std::collections::HashSet;

fn is_sound(workload: &Workload) {
    let mut tree = Tree::default();
    for step in workload.setup.iter().chain(&workload.steps) {
        assert_eq!(tree.apply(step), Ok(()), "{}: {step}", workload.name);
    }
    let last = workload.steps.last().unwrap();
    let persists = matches!(
        last,
        Step::Fsync { .. }
            | Step::Fdatasync { .. }
            | Step::FsyncDir { .. }
            | Step::Sync
            | Step::Insert { .. }
    );
    assert!(persists, "{}: nothing is promised by {last}", workload.name);
}

#[test]
fn every_workload_can_be_run_and_promises_something() {
    for name in NAMES {
        is_sound(&named(name).unwrap());
    }
    for number in 0..one_count() {
        is_sound(&sequence(1, number, 0).unwrap());
    }
    for number in 0..200 {
        is_sound(&sequence(2, number, 7).unwrap());
    }
    for number in 0..50 {
        let name = format!("objects:{number}");
        is_sound(&Workload::by_name(&name, 7).unwrap());
    }
    for number in 0..object_count() {
        let workload = Workload::by_name(&format!("object:{number}"), 7).unwrap();
        is_sound(&workload);
        assert_eq!(workload.steps.len(), 2);
    }
    assert!(one_count() > 100, "{}", one_count());
    assert!(object_count() > 100, "{}", object_count());
    assert!(sequence(1, one_count(), 0).is_none());
}

#[test]
fn workloads_are_made_again_from_name_and_seed() {
    for name in ["append-log", "one:3", "two:12", "object:4", "objects:2"] {
        let workload = Workload::by_name(name, 5).unwrap();
        assert_eq!(workload.name, name);
        assert_eq!(Workload::by_name(name, 5).unwrap(), workload);
    }
    let two: HashSet<String> = (0..100)
        .map(|number| sequence(2, number, 5).unwrap().to_string())
        .collect();
    assert!(two.len() > 90, "{} of 100 differ", two.len());
    let other = Workload::by_name("two:12", 6).unwrap();
    assert_ne!(other, Workload::by_name("two:12", 5).unwrap());
}

#[test]
fn unknown_names_are_refused_with_those_there_are() {
    for name in ["", "three:1", "one:x", "one:1000000", "object:1000000"] {
        let said = Workload::by_name(name, 1).unwrap_err();
        assert!(said.contains("write-rename"), "{said}");
    }
}

#[test]
fn contents_have_no_zeros_and_little_in_common() {
    let (one, two) = (content(1, 10_000), content(2, 10_000));
    assert_eq!(one, content(1, 10_000));
    assert_eq!(one[..100], content(1, 100));
    assert!(one.iter().all(|byte| *byte != 0));
    let same = one.iter().zip(&two).filter(|(one, two)| one == two).count();
    assert!(same < 100, "{same}");
}

#[test]
fn steps_do_to_a_real_directory_what_they_do_to_the_model() {
    let workload = named("append-log").unwrap();
    let root = std::env::temp_dir().join(format!("verify-steps-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    let mut tree = Tree::default();
    for step in workload.setup.iter().chain(&workload.steps) {
        step.run(&root).unwrap();
        tree.apply(step).unwrap();
    }
    for (path, expected) in tree.files() {
        let found = std::fs::read(root.join(path)).unwrap();
        assert!(found == expected, "{path}");
    }
    std::fs::remove_dir_all(&root).unwrap();
}
