//! Times to the nanosecond, chances by and large.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn lane(shape: Shape) -> Lane<u64> {
    Lane::new(shape, Random::new(1))
}

/// Everything that lands, with its time in milliseconds.
fn landed(lane: &mut Lane<u64>) -> Vec<(u64, u64, bool)> {
    let mut landed = Vec::new();
    while let Some(at) = lane.next_time() {
        while let Some(outcome) = lane.poll(at) {
            landed.push((at.as_nanos() / 1_000_000, outcome.content, outcome.arrived));
        }
    }
    landed
}

#[test]
fn datagrams_take_their_turn_at_the_rate_and_then_the_delay() {
    let mut lane = lane(Shape::line(SECOND, Rate(1000)));
    lane.send(Time::ZERO, 500, 1);
    lane.send(Time::ZERO, 250, 2);
    assert_eq!(lane.queued_bytes(), 250);
    assert_eq!(landed(&mut lane), [(1500, 1, true), (1750, 2, true)]);
}

#[test]
fn what_does_not_fit_into_the_queue_is_lost_at_once() {
    let mut lane = lane(Shape {
        queue_bytes: 1000,
        ..Shape::line(SECOND, Rate(1000))
    });
    for content in 0..4 {
        lane.send(Time::ZERO, 500, content);
    }
    let expected = [
        (0, 3, false),
        (1500, 0, true),
        (2000, 1, true),
        (2500, 2, true),
    ];
    assert_eq!(landed(&mut lane), expected);
    assert_eq!(lane.counts().overflowed, 1);
}

#[test]
fn a_new_rate_holds_for_the_rest_of_what_is_being_transmitted() {
    let mut lane = lane(Shape::line(Duration::ZERO, Rate(1000)));
    lane.send(Time::ZERO, 1000, 1);
    lane.send(Time::ZERO, 1000, 2);
    lane.reshape(
        Time::from_millis(500),
        Shape::line(Duration::ZERO, Rate(100)),
    );
    assert_eq!(landed(&mut lane), [(5500, 1, true), (15500, 2, true)]);
}

#[test]
fn a_cut_loses_what_is_under_way_and_what_is_sent_until_it_heals() {
    let mut lane = lane(Shape::line(SECOND, Rate(1000)));
    lane.send(Time::ZERO, 100, 1);
    lane.send(Time::ZERO, 500, 2);
    assert_eq!(lane.poll(Time::from_millis(200)), None);
    lane.cut(Time::from_millis(300));
    lane.send(Time::from_millis(400), 100, 3);
    let mut lost = landed(&mut lane);
    lost.sort_unstable_by_key(|(_, content, _)| *content);
    assert_eq!(lost, [(300, 1, false), (300, 2, false), (400, 3, false)]);
    lane.heal();
    lane.send(Time::from_secs(1), 100, 4);
    assert_eq!(landed(&mut lane), [(2100, 4, true)]);
}

#[test]
fn chance_loses_doubles_and_reorders_about_as_often_as_told() {
    let mut lane = lane(Shape {
        jitter: SECOND,
        loss: 0.2,
        duplication: 0.1,
        ..Shape::ideal()
    });
    for content in 0..10_000 {
        lane.send(Time::from_millis(content), 1, content);
        // The transmitter is polled as a world would.
        while lane.poll(Time::ZERO).is_some() {}
    }
    let landed = landed(&mut lane);
    let arrived: Vec<u64> = landed.iter().filter(|l| l.2).map(|l| l.1).collect();
    let lost = landed.len() - arrived.len();
    assert!((1_800..2_200).contains(&lost), "{lost} lost");
    assert!(
        (8_600..9_000).contains(&arrived.len()),
        "{} arrived",
        arrived.len()
    );
    assert!(!arrived.is_sorted(), "nothing was overtaken");
    assert_eq!(lane.counts().lost, lost as u64);
}

#[test]
fn equal_seeds_give_equal_worlds_and_others_do_not() {
    let run = |seed| {
        let shape = Shape {
            jitter: SECOND,
            loss: 0.3,
            duplication: 0.3,
            ..Shape::line(SECOND, Rate(5000))
        };
        let mut lane = Lane::new(shape, Random::new(seed));
        (0..200).for_each(|content| lane.send(Time::ZERO, content, content));
        landed(&mut lane)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
