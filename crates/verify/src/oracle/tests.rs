//! The oracle on crashes that are made up.

use super::*;
use crate::states::Said;
use crate::workload::{Step, content, named};

fn step(text: &str) -> Step {
    let words: Vec<&str> = text.split(' ').collect();
    let path = || words[1].to_owned();
    let number = |at: usize| words[at].parse().unwrap();
    match words[0] {
        "create" => Step::Create { path: path() },
        "mkdir" => Step::Mkdir { path: path() },
        "write" => Step::Write {
            path: path(),
            offset: number(2),
            len: number(3),
            tag: number(4),
        },
        "truncate" => Step::Truncate {
            path: path(),
            len: number(2),
        },
        "unlink" => Step::Unlink { path: path() },
        "link" => Step::Link {
            from: path(),
            to: words[2].to_owned(),
        },
        "rename" => Step::Rename {
            from: path(),
            to: words[2].to_owned(),
        },
        "fsync" => Step::Fsync { path: path() },
        "fdatasync" => Step::Fdatasync { path: path() },
        "fsync-dir" => Step::FsyncDir {
            path: words[1].trim_start_matches('.').to_owned(),
        },
        "sync" => Step::Sync,
        other => panic!("no step {other}"),
    }
}

fn history_with(promises: Promises, setup: &[&str], steps: &[&str]) -> History {
    let all = |texts: &[&str]| texts.iter().map(|text| step(text)).collect();
    let workload = Workload {
        name: "test".into(),
        setup: all(setup),
        steps: all(steps),
    };
    History::new(&workload, promises).unwrap()
}

/// A file `f` of 1,000 bytes was there before.
fn history(steps: &[&str]) -> History {
    history_with(Promises::JOURNAL, &["create f", "write f 0 1000 1"], steps)
}

fn file(path: &str, bytes: impl Into<Vec<u8>>) -> Entry {
    Entry {
        path: path.into(),
        kind: EntryKind::File(bytes.into()),
    }
}

/// What is wrong after a crash when steps up to these had begun and were done.
fn judged(history: &History, begun: u32, done: u32, found: &[Entry]) -> String {
    let judgement = judge(history, Said { begun, done }, found);
    let words: Vec<String> = judgement
        .findings
        .iter()
        .map(|finding| {
            let promised = if finding.was_promised {
                ""
            } else {
                " unpromised"
            };
            format!("{finding}{promised}")
        })
        .collect();
    words.join(", ")
}

fn old() -> Vec<u8> {
    content(1, 1000)
}

#[test]
fn what_was_there_before_stays() {
    let history = history(&["create g"]);
    assert_eq!(judged(&history, 1, 1, &[file("f", old())]), "");
    assert_eq!(
        judged(&history, 1, 1, &[file("f", old()), file("g", [])]),
        ""
    );
    assert_eq!(judged(&history, 0, 0, &[]), "f missing");
    assert_eq!(
        judged(&history, 0, 0, &[file("f", &old()[..999])]),
        "f truncated"
    );
    let mut zeros = old();
    zeros[500..].fill(0);
    assert_eq!(judged(&history, 0, 0, &[file("f", zeros)]), "f zero_filled");
    let mut mixed = old();
    mixed[10] ^= 1;
    assert_eq!(judged(&history, 0, 0, &[file("f", mixed)]), "f foreign");
    let unreadable = Entry {
        path: "f".into(),
        kind: EntryKind::Unreadable("I/O error".into()),
    };
    assert_eq!(judged(&history, 0, 0, &[unreadable]), "f unreadable");
    // A file before it was begun to be made, and one that nobody ever makes.
    let both = [file("f", old()), file("g", [])];
    assert_eq!(judged(&history, 0, 0, &both), "g stale");
    let strange = [file("f", old()), file("h", [])];
    assert_eq!(judged(&history, 0, 0, &strange), "h foreign unpromised");
}

#[test]
fn a_write_may_arrive_in_part_until_it_is_durable_and_not_after() {
    let history = history(&["write f 500 1000 2", "fsync f", "write f 0 100 3"]);
    let new = content(2, 1000);
    let whole = [&old()[..500], &new].concat();
    let part = [&old()[..500], &new[..100]].concat();
    assert_eq!(judged(&history, 2, 1, &[file("f", old())]), "");
    assert_eq!(judged(&history, 2, 1, &[file("f", whole.clone())]), "");
    // Space was given and the data had not come yet.
    let mut zeros = whole.clone();
    zeros[1000..].fill(0);
    assert_eq!(judged(&history, 2, 1, &[file("f", zeros.clone())]), "");
    assert_eq!(judged(&history, 2, 2, &[file("f", whole.clone())]), "");
    assert_eq!(judged(&history, 2, 2, &[file("f", zeros)]), "f zero_filled");
    assert_eq!(judged(&history, 2, 2, &[file("f", part)]), "f truncated");
    let mut stale = whole.clone();
    stale[500..1000].copy_from_slice(&old()[500..]);
    assert_eq!(judged(&history, 2, 2, &[file("f", stale)]), "f stale");
    // A later write over it, in part.
    let mut later = whole;
    later[..50].copy_from_slice(&content(3, 50));
    assert_eq!(judged(&history, 3, 2, &[file("f", later.clone())]), "");
    assert_eq!(judged(&history, 2, 2, &[file("f", later)]), "f foreign");
}

#[test]
fn an_unpromised_file_may_be_anything_of_its_own_and_nothing_of_others() {
    let history = history(&["create g", "write g 0 900 2"]);
    let mut g = content(2, 900);
    let found = |g: &[u8]| [file("f", old()), file("g", g)];
    for len in [0, 500, 900] {
        assert_eq!(judged(&history, 2, 2, &found(&g[..len])), "");
    }
    g[..512].fill(0);
    assert_eq!(judged(&history, 2, 2, &found(&g)), "");
    g[..512].copy_from_slice(&old()[..512]);
    assert_eq!(judged(&history, 2, 2, &found(&g)), "g foreign unpromised");
}

#[test]
fn fsync_keeps_names_where_that_is_promised() {
    let steps = ["create g", "write g 0 900 2", "fsync g", "unlink g"];
    let journal = history(&steps);
    let plain = history_with(Promises::PLAIN, &["create f", "write f 0 1000 1"], &steps);
    let without = [file("f", old())];
    assert_eq!(judged(&journal, 3, 3, &without), "g missing");
    assert_eq!(judged(&plain, 3, 3, &without), "");
    // What is there is what was made durable, on both.
    let half = [file("f", old()), file("g", content(2, 450))];
    assert_eq!(judged(&journal, 3, 3, &half), "g truncated");
    assert_eq!(judged(&plain, 3, 3, &half), "g truncated");
    assert_eq!(judged(&journal, 4, 3, &without), "");
}

#[test]
fn a_directory_that_was_made_durable_has_its_names_and_has_lost_its_lost_ones() {
    let history = history(&["create g", "fsync-dir .", "unlink g", "fsync-dir ."]);
    let (f, g) = (file("f", old()), file("g", []));
    assert_eq!(
        judged(&history, 2, 2, std::slice::from_ref(&f)),
        "g missing"
    );
    assert_eq!(judged(&history, 3, 3, std::slice::from_ref(&f)), "");
    assert_eq!(judged(&history, 3, 3, &[f.clone(), g.clone()]), "");
    assert_eq!(judged(&history, 4, 4, &[f.clone(), g]), "g stale");
    assert_eq!(judged(&history, 4, 4, &[f]), "");
}

#[test]
fn a_file_that_moves_is_at_one_of_its_names() {
    let steps = ["rename f g", "fsync g"];
    let journal = history(&steps);
    let at = |name: &str| [file(name, old())];
    assert_eq!(judged(&journal, 1, 1, &at("f")), "");
    assert_eq!(judged(&journal, 1, 1, &at("g")), "");
    assert_eq!(judged(&journal, 1, 1, &[]), "g missing");
    assert_eq!(judged(&journal, 2, 2, &at("f")), "g missing");
    let both = [file("f", old()), file("g", old())];
    assert_eq!(judged(&journal, 1, 1, &both), "f stale");
    let plain = history_with(Promises::PLAIN, &["create f", "write f 0 1000 1"], &steps);
    assert_eq!(judged(&plain, 1, 1, &[]), "");
    assert_eq!(judged(&plain, 1, 1, &both), "");
}

#[test]
fn a_file_that_moves_between_directories_is_not_at_both() {
    let setup = ["mkdir A", "mkdir B", "create A/f", "write A/f 0 1000 1"];
    let moved = |steps: &[&str]| history_with(Promises::JOURNAL, &setup, steps);
    let found = |paths: &[&str]| -> Vec<Entry> {
        let directory = |path: &str| Entry {
            path: path.into(),
            kind: EntryKind::Directory,
        };
        let files = paths.iter().map(|path| file(path, old()));
        files.chain(["A", "B"].map(directory)).collect()
    };
    let once = moved(&["rename A/f B/f"]);
    assert_eq!(judged(&once, 1, 1, &found(&["A/f"])), "");
    assert_eq!(judged(&once, 1, 0, &found(&["B/f"])), "");
    assert_eq!(judged(&once, 1, 0, &found(&["A/f", "B/f"])), "A/f stale");
    let twice = moved(&["rename A/f B/f", "rename B/f A/g"]);
    let two = found(&["A/f", "A/g"]);
    assert_eq!(judged(&twice, 2, 2, &two), "A/f stale");
    // A file that has two names may lose either first.
    let linked = moved(&["link A/f B/f", "unlink A/f"]);
    assert_eq!(judged(&linked, 2, 2, &found(&["A/f", "B/f"])), "");
    // An empty file is what another one at the name may be as well.
    let other = history_with(
        Promises::JOURNAL,
        &["create f"],
        &["rename f g", "create f"],
    );
    assert_eq!(judged(&other, 2, 2, &[file("f", []), file("g", [])]), "");
}

/// Nothing is wrong with what is there between two steps, of whatever workload.
#[test]
fn what_a_workload_leaves_between_its_steps_is_right() {
    let named = crate::workload::NAMES.map(str::to_owned);
    let ones = (0..crate::workload::one_count()).map(|number| format!("one:{number}"));
    let twos = (0..200).map(|number| format!("two:{number}"));
    for name in named.into_iter().chain(ones).chain(twos) {
        let workload = Workload::by_name(&name, 1).unwrap();
        let history = History::new(&workload, Promises::JOURNAL).unwrap();
        for (number, tree) in history.trees.iter().enumerate() {
            let found = found_in(tree);
            let number = number as u32;
            assert_eq!(judged(&history, number, number, &found), "", "{name}");
            // The next step had begun.
            assert_eq!(judged(&history, number + 1, number, &found), "", "{name}");
        }
    }
}

#[test]
fn what_is_said_to_be_done_and_has_not_begun_is_not_done() {
    let history = history(&["create g", "fsync g", "write g 0 10 2"]);
    let found = [file("f", old())];
    assert_eq!(judged(&history, 0, 3, &found), "");
    assert_eq!(judged(&history, 1, 9, &found), "");
    assert_eq!(judged(&history, 2, 9, &found), "g missing");
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one() {
    let history = history(&[
        "create n",
        "write n 0 700 2",
        "fsync n",
        "rename n f",
        "fsync-dir .",
    ]);
    let new = content(2, 700);
    assert_eq!(
        judged(&history, 4, 4, &[file("f", old()), file("n", new.clone())]),
        ""
    );
    assert_eq!(judged(&history, 4, 4, &[file("f", new.clone())]), "");
    assert_eq!(
        judged(&history, 4, 4, &[file("n", new.clone())]),
        "f missing"
    );
    assert_eq!(judged(&history, 5, 5, &[file("f", old())]), "f stale");
    assert_eq!(judged(&history, 5, 5, &[file("f", new)]), "");
}

#[test]
fn names_go_with_their_directory() {
    let history = history(&["mkdir d", "create d/g", "write d/g 0 10 2", "fsync d/g"]);
    let f = || file("f", old());
    let d = || Entry {
        path: "d".into(),
        kind: EntryKind::Directory,
    };
    assert_eq!(judged(&history, 3, 3, &[f()]), "");
    assert_eq!(judged(&history, 3, 3, &[f(), d()]), "");
    assert_eq!(judged(&history, 4, 4, &[f()]), "d missing, d/g missing");
    assert_eq!(
        judged(&history, 4, 4, &[f(), d(), file("d/g", content(2, 10))]),
        ""
    );
}

#[test]
fn a_shorter_file_may_be_longer_until_that_is_durable() {
    let history = history(&["truncate f 10", "fdatasync f"]);
    assert_eq!(judged(&history, 1, 1, &[file("f", old())]), "");
    assert_eq!(judged(&history, 1, 1, &[file("f", &old()[..10])]), "");
    assert_eq!(judged(&history, 2, 2, &[file("f", &old()[..10])]), "");
    assert_eq!(judged(&history, 2, 2, &[file("f", old())]), "f stale");
}

/// What is found where everything is as in a tree.
fn found_in(tree: &Tree) -> Vec<Entry> {
    let names = tree.names.iter().map(|(name, meaning)| Entry {
        path: name.clone(),
        kind: match meaning {
            tree::Meaning::Directory => EntryKind::Directory,
            tree::Meaning::File(file) => EntryKind::File(tree.contents[file].to_vec()),
        },
    });
    names.collect()
}

/// What the workload leaves is right at its end, and every single fault in it is found.
#[test]
fn every_single_fault_in_what_a_workload_leaves_is_found() {
    for name in crate::workload::NAMES {
        let workload = named(name).unwrap();
        let history = History::new(&workload, Promises::JOURNAL).unwrap();
        let tree = history.trees.last().unwrap();
        let found = found_in(tree);
        for (step, number) in workload.steps.iter().zip(1_u32..) {
            let Step::Rename { from, to } = step else {
                continue;
            };
            let mut both = found_in(&history.trees[number as usize]);
            let moved = both.iter().find(|entry| entry.path == *to).unwrap();
            both.push(Entry {
                path: from.clone(),
                kind: moved.kind.clone(),
            });
            let said = judged(&history, number, number, &both);
            assert_eq!(said, format!("{from} stale"), "{name} {step}");
        }
        let end = workload.steps.len() as u32;
        assert_eq!(judged(&history, end, end, &found), "", "{name}");
        for (number, entry) in found.iter().enumerate() {
            let mut without = found.clone();
            without.remove(number);
            assert_ne!(
                judged(&history, end, end, &without),
                "",
                "{name} without {entry:?}"
            );
            let EntryKind::File(bytes) = &entry.kind else {
                continue;
            };
            for at in [0, bytes.len() / 2, bytes.len() - 1] {
                let mut wrong = bytes.clone();
                wrong[at] = 0;
                let mut changed = found.clone();
                changed[number].kind = EntryKind::File(wrong);
                assert_ne!(judged(&history, end, end, &changed), "", "{name} {at}");
            }
        }
    }
}

#[test]
fn what_had_to_be_there_and_is_counts_as_intact() {
    let history = history(&["create g", "fsync g", "unlink f"]);
    let both = [file("f", old()), file("g", "")];
    let intact = |begun, done, found: &[Entry]| judge(&history, Said { begun, done }, found).intact;
    // Before it is synced, g need not be there.
    assert_eq!(intact(1, 1, &both), 1);
    assert_eq!(intact(2, 2, &both), 2);
    // From then on f may be gone.
    assert_eq!(intact(3, 2, &both), 1);
    assert_eq!(intact(2, 2, &both[..1]), 1);
    assert_eq!(intact(2, 2, &[]), 0);
}

#[test]
fn what_is_gone_before_anybody_removed_it_is_missed() {
    let history = history(&["create g", "unlink f"]);
    let [made, removed] = [1, 2].map(|step| {
        let (begun, done) = (step, step);
        Said { begun, done }
    });
    let at_each = |said: &[Said], found: &[Entry]| {
        let (judgement, said) = judge_at_each(&history, said, found);
        let words = judgement.findings.iter().map(ToString::to_string);
        (words.collect::<Vec<_>>().join(", "), said)
    };
    let nothing = (String::new(), removed);
    // Alone at the end of its stretch nothing is wrong with it.
    assert_eq!(at_each(&[removed], &[]), nothing);
    let both = [made, removed];
    assert_eq!(at_each(&both, &[]), ("f missing".into(), made));
    assert_eq!(at_each(&both, &[file("f", old())]), nothing);
    // Nothing was said yet.
    let (judgement, said) = judge_at_each(&history, &[], &[]);
    assert_eq!((judgement.findings.len(), said), (1, Said::default()));
}
