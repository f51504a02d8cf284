//! Results as they are kept: what is read of them, and what is refused.

use super::*;
use crate::powercut::DiskCache;
use crate::speed::{Measure, Place};
use serde_json::{Value, json};

/// What every result has.
fn head(kind: &str, kernel: &str) -> Value {
    json!({
        "kind": kind, "version": 1, "date": "2026-11-27T07:00:00Z", "release": "0.1.0",
        "command": format!("azekura verify {kind} --json"), "kernel": kernel,
        "load": "0.10 0.20 0.30", "seed": 7,
    })
}

fn with(mut head: Value, more: Value) -> Value {
    let more = more.as_object().expect("it is an object").clone();
    for (key, value) in more {
        head[key] = value;
    }
    head
}

/// A crash run: 25 of 100 states are bad.
pub(crate) fn crash(kernel: &str) -> Value {
    let failure = json!({
        "workload": "one:3", "steps": "rename a b", "state": "3/prefix:1", "recovery": null,
        "begun": 2, "done": 1, "findings": ["A/foo missing"], "reduced": "3/missing:4",
        "writes": [{"number": 4, "offset": 4096, "bytes": 512}], "replay": "azekura verify crash",
    });
    let target = json!({
        "target": "ext4", "mount_options": "", "outcomes": {"missing": 30, "stale": 0},
        "seconds": 2.0, "states_per_second": 50.0, "interrupted": false, "failures": [failure],
        "states": 100, "lost_acks": 30, "unmountable": 0, "exposed": 0, "bad_states": 25,
        "pruned": 5, "sampled": 0, "distinct_states": 105, "recovery_states": 0, "workloads": 2,
        "steps": 9, "writes": 40, "written_bytes": 4096, "flushes": 11,
    });
    with(head("crash", kernel), json!({"targets": [target]}))
}

/// A cell of a speed run; each measure has one rate for each repeat.
pub(crate) fn cell(target: &str, more: Value, measures: &[(&str, &[f64])]) -> Value {
    let repeats = measures.first().map_or(0, |(_, rates)| rates.len());
    let sample = |round: usize| {
        let values = measures
            .iter()
            .map(|(measure, rates)| json!({"measure": measure, "rate": rates[round], "cpu": 0.25}));
        json!({
            "round": round, "values": values.collect::<Vec<_>>(), "others_cpu": 0.0, "steal": 0.0,
            "is_disturbed": false, "load_before": 0.1, "seconds": 1.0,
        })
    };
    let cell = json!({
        "target": target, "block_bytes": 4096, "memory_bytes": null, "flush_seconds": null,
        "settings": [], "mount_options": "", "measures": [],
        "samples": (0..repeats).map(sample).collect::<Vec<_>>(),
    });
    with(cell, more)
}

/// A speed run with these cells.
pub(crate) fn speed(kernel: &str, cells: &[Value]) -> Value {
    let more = json!({
        "cells": cells, "block_ratios": [], "left_out": [], "failed": [], "is_loaded": false,
        "disturbed": 0, "caches_dropped": true, "processors": 2, "load_before": 0.05, "repeats": 5,
        "size_bytes": 1 << 20, "files": 100, "seconds": 9.5, "interrupted": false,
    });
    with(head("speed", kernel), more)
}

/// A tuning run with two points.
pub(crate) fn tune(kernel: &str) -> Value {
    let point = |flush: f64, speed: f64, share: f64| {
        let recovery = json!({
            "median": share, "low": share, "high": share, "confidence": 0.0, "count": 1,
        });
        let speed = json!({
            "measure": "block_write", "median": speed, "low": speed, "high": speed,
            "confidence": 0.0, "count": 1, "cpu": 0.1, "is_steady": true,
        });
        json!({
            "target": "ext4", "block_bytes": 4096, "memory_bytes": null, "flush_seconds": flush,
            "settings": [], "mount_options": "", "recovery": recovery, "unmountable": 0,
            "after": [{"wait_seconds": 5.0, "recovery": recovery}], "speed": speed,
            "is_on_front": true,
        })
    };
    let more = json!({
        "points": [point(30.0, 2e8, 0.25), point(1.0, 1e8, 0.75)], "by": "block_write",
        "rank_correlation": -1.0, "left_out": [], "failed": [], "is_loaded": true,
        "load_before": 3.0, "processors": 2, "repeats": 1, "interrupted": false,
    });
    with(head("tune", kernel), more)
}

/// Power cuts of one cell: 15 of 148 files were whole, as in a known table of intervals.
pub(crate) fn powercut(kernel: &str) -> Value {
    let sample = |number: u32| {
        let is_whole = number < 15;
        json!({
            "outcome": if is_whole { "intact" } else { "zero_filled" }, "size_share": 1.0,
            "content_share": if is_whole { 1.0 } else { 0.2 }, "write_seconds": 1.5,
            "cut_after_seconds": 5.01, "seconds": 9.0, "load_before": 0.5, "words": "",
        })
    };
    let cell = json!({
        "target": "ext3", "how": "close", "size_bytes": 1 << 20, "wait_seconds": 5.0,
        "flush_seconds": 30.0, "mount_options": "", "count": 148, "whole": 15, "low": 0.0,
        "high": 1.0, "size_share": 1.0, "content_share": 0.2, "write_seconds": 1.5, "lost_acks": 0,
        "outcomes": {"intact": 15}, "samples": (0..148).map(sample).collect::<Vec<_>>(),
    });
    let more = json!({
        "cells": [cell], "cuts": 148, "lost_acks": 0, "failed": [], "guest_kernel": kernel,
        "memory_bytes": 512 << 20, "jobs": 2, "half_width": 0.1, "cuts_max": 148,
        "boot_seconds": 9.0, "seconds": 900.0, "interrupted": false,
    });
    with(head("powercut", "Linux of the host"), more)
}

/// The same, of synced files on disks whose cache is lost: those that were not flushed are gone.
pub(crate) fn cached_powercut(kernel: &str) -> Value {
    let mut value = powercut(kernel);
    value["left_out"] = json!([{"what": "jfs", "why": "its kernel has no <jfs>"}]);
    value["cells"][0]["how"] = json!("fsync");
    value["cells"][0]["disk_cache"] = json!("lost");
    for sample in value["cells"][0]["samples"].as_array_mut().unwrap() {
        sample["flushes"] = json!(3);
        sample["lost_bytes"] = json!(8192);
    }
    value
}

/// The result that this JSON is.
pub(crate) fn read(value: &Value) -> Result<Run, ResultError> {
    Run::read("a file", value.to_string().as_bytes())
}

#[test]
fn medians_and_intervals_are_made_anew() {
    let rates: &[f64] = &[100.0, 105.0, 102.0, 98.0, 101.0];
    let one = speed(
        "Linux 6.1",
        &[cell("ext4", json!({}), &[("block_write", rates)])],
    );
    let Found::Speed(speeds) = read(&one).unwrap().found else {
        panic!("it is a speed run");
    };
    let summaries = speeds.outcome.summaries();
    assert_eq!((summaries.len(), summaries[0].count), (1, 5));
    assert_eq!(
        (summaries[0].measure, summaries[0].median),
        (Measure::BlockWrite, 101.0)
    );
    let interval = summaries[0].interval;
    assert_eq!(
        (interval.low, interval.high, interval.confidence),
        (98.0, 105.0, 0.9375)
    );
    // Newcombe 1998, table I; whatever the file says of itself.
    let Found::Powercut(cuts) = read(&powercut("6.1")).unwrap().found else {
        panic!("they are power cuts");
    };
    let found = &cuts.cells[0];
    assert_eq!(
        (found.cuts, found.hits, found.content_share),
        (148, 15, 0.2)
    );
    assert!((found.interval.low - 0.0624).abs() < 5e-5, "{found:?}");
    assert!((found.interval.high - 0.1605).abs() < 5e-5, "{found:?}");
    // Files of before disks had caches are of disks without.
    assert_eq!(found.cell.disk_cache, DiskCache::None);
    let Found::Powercut(cuts) = read(&cached_powercut("6.1")).unwrap().found else {
        panic!("they are power cuts");
    };
    let found = &cuts.cells[0];
    assert_eq!(found.cell.disk_cache, DiskCache::Lost);
    assert_eq!((found.flushes, found.lost_acks), (3.0, 133));
}

#[test]
fn every_kind_is_read_with_what_it_says_of_itself() {
    let run = read(&crash("Linux 6.18")).unwrap();
    assert_eq!(
        (run.head.kind, &*run.head.kernel, run.head.seed),
        (Kind::Crash, "Linux 6.18", 7)
    );
    let Found::Crash(outcomes) = &run.found else {
        panic!("it is a crash run");
    };
    let outcome = &outcomes[0];
    assert_eq!((outcome.totals.states, outcome.totals.distinct), (100, 105));
    assert_eq!(outcome.failures[0].reduced.to_string(), "3/missing:4");
    let run = read(&tune("Linux 6.18")).unwrap();
    assert!(run.is_loaded() && run.head.command == "azekura verify tune --json");
    let Found::Tune(tuning) = &run.found else {
        panic!("it is a tuning run");
    };
    assert_eq!(tuning.front(), [true, true]);
    assert_eq!(tuning.trade_off().unwrap().rho, -1.0);
    // Of power cuts the kernel that counts is that of the machines.
    assert_eq!(
        read(&powercut("6.1.0-56")).unwrap().head.kernel,
        "Linux 6.1.0-56"
    );
    let mut directory = cell(
        "/mnt/lab",
        json!({"block_bytes": null}),
        &[("create", &[9.0])],
    );
    directory["flush_seconds"] = json!(0.5);
    let Found::Speed(speeds) = read(&speed("L", &[directory])).unwrap().found else {
        panic!("it is a speed run");
    };
    let cell = &speeds.outcome.cells[0];
    assert_eq!(cell.place, Place::Directory("/mnt/lab".into()));
    assert_eq!(cell.flush_time, Some(Duration::from_millis(500)));
}

#[test]
fn points_of_tuning_are_made_anew_from_their_repeats() {
    let mut value = tune("L");
    let rest = json!({"whole_files": 0, "is_mountable": true});
    let cut = |wait: f64, share: f64| {
        let own = json!({"wait_seconds": wait, "share": share});
        with(own, rest.clone())
    };
    // As in the test of the rate itself: the mean over waits, the median over repeats.
    value["points"][0]["recoveries"] = json!([
        [cut(0.0, 0.0), cut(5.0, 1.0)],
        [cut(0.0, 0.2), cut(5.0, 1.0)],
        [cut(0.0, 0.0), cut(5.0, 0.0)],
    ]);
    value["points"][0]["rates"] = json!([3e6, 1e6, 2e6]);
    let Found::Tune(tuning) = read(&value).unwrap().found else {
        panic!("it is a tuning run");
    };
    let recovery = tuning.points[0].recovery.unwrap();
    assert_eq!((recovery.count, recovery.median), (3, 0.5));
    assert_eq!((recovery.interval.low, recovery.interval.high), (0.0, 0.6));
    assert_eq!(tuning.points[0].after[0].1.unwrap().median, 1.0);
    let speed = tuning.points[0].speed.unwrap();
    assert_eq!(
        (speed.count, speed.median, speed.interval.high),
        (3, 2e6, 3e6)
    );
    value["points"][0]["recoveries"][0][0]["share"] = json!(2.0);
    assert!(matches!(read(&value), Err(ResultError::Invalid(_))));
}

#[test]
fn a_disturbed_run_is_loaded_also_if_it_says_otherwise() {
    let mut busy = speed("L", &[cell("ext4", json!({}), &[("create", &[9.0])])]);
    assert!(!read(&busy).unwrap().is_loaded());
    busy["cells"][0]["samples"][0]["steal"] = json!(0.5);
    assert!(read(&busy).unwrap().is_loaded());
}

#[test]
fn results_from_before_there_was_a_version_are_told_apart() {
    let old = [
        (crash("L"), Kind::Crash),
        (speed("L", &[]), Kind::Speed),
        (tune("L"), Kind::Tune),
        (powercut("6"), Kind::Powercut),
    ];
    for (mut value, kind) in old {
        let object = value.as_object_mut().unwrap();
        for key in ["kind", "version", "date", "command", "release"] {
            object.remove(key);
        }
        let run = read(&value).unwrap();
        assert_eq!(
            (run.head.kind, &*run.head.date, &*run.head.command),
            (kind, "", "")
        );
    }
}

#[test]
fn what_is_no_result_is_refused_with_why() {
    let refused = |text: &str| Run::read("x", text.as_bytes()).unwrap_err();
    for text in ["", "{", "[1,", "{\"kind\": \"crash\"", "no", "\u{0}"] {
        assert!(matches!(refused(text), ResultError::Broken(_)), "{text:?}");
    }
    for text in [
        "{}",
        "{\"kind\":\"top\",\"version\":1}",
        "{\"version\":1,\"targets\":[]}",
    ] {
        assert_eq!(refused(text), ResultError::Other, "{text}");
    }
    for text in [
        "7",
        "null",
        "\"crash\"",
        "[]",
        "{\"kind\":7}",
        "{\"version\":\"1\"}",
    ] {
        let error = refused(text);
        let is_known = matches!(error, ResultError::Invalid(_) | ResultError::Other);
        assert!(is_known, "{text}: {error}");
    }
    let mut newer = crash("L");
    newer["version"] = json!(2);
    assert_eq!(read(&newer).unwrap_err(), ResultError::Version(2));
    // Deep nesting ends the reading, and not the program.
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    assert!(matches!(refused(&deep), ResultError::Broken(_)));
}

/// Puts a value at a path of keys and numbers.
fn put(value: &mut Value, path: &str, new: Value) {
    *value
        .pointer_mut(path)
        .unwrap_or_else(|| panic!("there is no {path}")) = new;
}

#[test]
fn what_makes_no_sense_is_refused_as_a_whole() {
    let cells = [cell("ext4", json!({}), &[("create", &[9.0])])];
    let cases = [
        (crash("L"), "/targets/0/bad_states", json!(101)),
        (crash("L"), "/targets/0/states", json!(u64::MAX)),
        (crash("L"), "/targets/0/states", json!(-1)),
        (crash("L"), "/targets/0/outcomes", json!({"eaten": 1})),
        (crash("L"), "/targets/0/seconds", json!(-1.0)),
        (crash("L"), "/targets/0/seconds", json!(1e300)),
        (crash("L"), "/targets/0/failures/0/state", json!("9")),
        (crash("L"), "/kernel", json!(null)),
        (speed("L", &cells), "/cells/0/target", json!("fat")),
        (
            speed("L", &cells),
            "/cells/0/samples/0/values/0/rate",
            json!(-1.0),
        ),
        (
            speed("L", &cells),
            "/cells/0/samples/0/values/0/rate",
            json!(null),
        ),
        (
            speed("L", &cells),
            "/cells/0/samples/0/values/0/rate",
            json!(1e300),
        ),
        (
            speed("L", &cells),
            "/cells/0/samples/0/values/0/measure",
            json!("x"),
        ),
        (speed("L", &cells), "/cells/0/flush_seconds", json!(1e300)),
        (
            speed("L", &cells),
            "/cells/0/settings",
            json!([{"name": "panic", "value": 1}]),
        ),
        (speed("L", &cells), "/cells", json!([cells[0], cells[0]])),
        (speed("L", &cells), "/cells", json!(7)),
        (tune("L"), "/points/0/recovery/median", json!(1.5)),
        (tune("L"), "/points/0/recovery/low", json!(0.9)),
        (tune("L"), "/points/0/speed/high", json!(1.0)),
        (tune("L"), "/by", json!("iops")),
        (
            powercut("6"),
            "/cells/0/samples/0/content_share",
            json!(1.1),
        ),
        (powercut("6"), "/cells/0/samples/0/outcome", json!("eaten")),
        (powercut("6"), "/cells/0/target", json!("fat")),
        (cached_powercut("6"), "/cells/0/disk_cache", json!("found")),
        (powercut("6"), "/cells/0/wait_seconds", json!(-5.0)),
        (powercut("6"), "/guest_kernel", json!(null)),
    ];
    for (mut value, path, wrong) in cases {
        assert!(read(&value).is_ok(), "{path}");
        put(&mut value, path, wrong.clone());
        let error = read(&value).map(|_| ()).unwrap_err();
        assert!(
            matches!(error, ResultError::Invalid(_)),
            "{path} {wrong}: {error}"
        );
    }
}

#[test]
fn whatever_is_cut_off_or_left_away_does_no_harm() {
    let cells = [cell("ext4", json!({}), &[("create", &[9.0])])];
    for whole in [crash("L"), speed("L", &cells), tune("L")] {
        let text = whole.to_string();
        for len in 0..text.len() {
            assert!(Run::read("x", &text.as_bytes()[..len]).is_err(), "at {len}");
        }
        for key in whole.as_object().unwrap().keys() {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(key);
            // It is read or refused.
            let _ = read(&less);
        }
    }
}
