//! When a view is stored.

use acl::{Costs, Point, Policy};
use proptest::prelude::*;
use std::time::Duration;

fn point(entries: u32, times: [u64; 3], reads: [u32; 2]) -> Point {
    let [stored_nanos, converted_nanos, storing_nanos] = times;
    let [stored_reads, converted_reads] = reads;
    Point {
        entries,
        stored_nanos,
        converted_nanos,
        storing_nanos,
        stored_reads,
        converted_reads,
    }
}

/// The shape of the paper's Figure 3: up to five entries the view costs a read that the mode does
/// not, from six on both cost one and conversion takes longer, from 35 on storing is slow.
fn of_the_paper() -> Costs {
    Costs::new(vec![
        point(35, [2_000_000, 2_200_000, 9_000_000], [2, 1]),
        point(3, [600_000, 100_000, 1_100_000], [1, 0]),
        point(5, [600_000, 100_000, 1_100_000], [1, 0]),
        point(6, [600_000, 1_100_000, 1_590_000], [1, 1]),
        point(34, [700_000, 1_300_000, 1_890_000], [1, 1]),
        point(200, [3_000_000, 9_000_000, 20_000_000], [2, 1]),
    ])
}

#[test]
fn the_papers_figures_give_the_papers_rules() {
    let costs = of_the_paper();
    let steps: Vec<_> = costs
        .steps()
        .map(|step| (step.before, step.after))
        .collect();
    assert_eq!(steps, [(5, 6), (34, 35)]);
    for entries in 3..6 {
        let judged = Policy::Measured.judge(entries, u64::MAX, &costs);
        assert!(!judged, "T_A is above T_C at {entries}");
    }
    for entries in 6..35 {
        let first = (1..9).find(|accesses| Policy::Measured.judge(entries, *accesses, &costs));
        assert_eq!(first, Some(2), "two accesses pay at {entries}");
    }
    assert!(!Policy::Measured.judge(35, 34, &costs) && Policy::Measured.judge(35, 35, &costs));
    assert!(Policy::Measured.judge(200, 3, &costs) && !Policy::Measured.judge(200, 2, &costs));
}

#[test]
fn where_everything_lies_in_the_inode_nothing_is_stored() {
    let inline = Costs::new(
        (3..=200)
            .map(|n| point(n, [2600, 2500, 30_000], [0, 0]))
            .collect(),
    );
    for entries in [0, 3, 20, 200, 5000] {
        assert!(!Policy::Measured.judge(entries, 1_000_000, &inline));
    }
    assert!(
        !Policy::Measured.judge(9, 1_000_000, &Costs::default()),
        "nothing was measured"
    );
}

#[test]
fn times_are_in_proportion_between_points_and_jump_at_steps() {
    let costs = Costs::new(vec![
        point(10, [100, 200, 300], [0, 0]),
        point(20, [200, 400, 600], [0, 0]),
        point(30, [900, 900, 900], [1, 0]),
    ]);
    let stored = |entries| costs.at(entries).expect("measured").stored;
    let nanos = [
        (1, 100),
        (10, 100),
        (15, 150),
        (20, 200),
        (29, 200),
        (30, 900),
        (99, 900),
    ];
    for (entries, expected) in nanos {
        assert_eq!(stored(entries), Duration::from_nanos(expected), "{entries}");
    }
    let far = Costs::new(vec![
        point(0, [u64::MAX; 3], [0, 0]),
        point(u32::MAX, [u64::MAX; 3], [0, 0]),
    ]);
    assert!(far.at(7).expect("measured").pays_from().is_none());
}

#[test]
fn a_policy_is_its_text() {
    let policies = [
        ("never", Policy::Never),
        ("always", Policy::Always),
        ("measured", Policy::Measured),
        ("entries>=6", Policy::Entries { from: 6, to: None }),
        (
            "6..34",
            Policy::Entries {
                from: 6,
                to: Some(34),
            },
        ),
    ];
    for (text, policy) in policies {
        assert_eq!(
            (text.parse(), policy.to_string().as_str()),
            (Ok(policy), text)
        );
    }
    for text in [
        "",
        "sometimes",
        "6",
        "34..6",
        "..6",
        "6..",
        "entries>=",
        "x entries>=6",
        "-1..3",
    ] {
        assert!(text.parse::<Policy>().is_err(), "{text}");
    }
    let within = Policy::Entries {
        from: 6,
        to: Some(34),
    };
    let stored = [5, 6, 34, 35].map(|entries| within.judge(entries, 1, &Costs::default()));
    assert_eq!(stored, [false, true, true, false]);
}

proptest! {
    /// The paper's inequality, as it stands there.
    #[test]
    fn storing_pays_from_where_the_inequality_turns(
        times in any::<[u32; 3]>(),
        accesses in 1..2000_u64,
    ) {
        let costs = Costs::new(vec![point(9, times.map(u64::from), [1, 1])]);
        let [stored, converted, storing] = times.map(u128::from);
        let n = u128::from(accesses);
        let keeps_converting = storing + (n - 1) * stored > n * converted;
        let never = stored >= converted;
        let judged = Policy::Measured.judge(9, accesses, &costs);
        prop_assert_eq!(judged, !never && !keeps_converting);
    }

    /// However often a file is accessed, deciding without knowing costs no more than knowing, and
    /// once the difference of storing and converting more.
    #[test]
    fn not_knowing_how_often_costs_at_most_about_twice(
        stored in 1..1000_u64,
        converting in 0..1000_u64,
        storing in 0..5000_u64,
        accesses in 1..300_u64,
    ) {
        // Who stores has converted before.
        let converted = converting;
        let storing = converted + storing;
        let costs = Costs::new(vec![point(9, [stored, converted, storing], [1, 1])]);
        let mut is_stored = false;
        let mut spent = 0;
        for access in 1..=accesses {
            spent += match is_stored {
                true => stored,
                false if Policy::Measured.judge(9, access, &costs) => {
                    is_stored = true;
                    storing
                }
                false => converted,
            };
        }
        let never = accesses * converted;
        let at_once = storing + (accesses - 1) * stored;
        let known = never.min(at_once);
        prop_assert!(spent <= 2 * known + converted, "{} {}", spent, known);
    }
}
