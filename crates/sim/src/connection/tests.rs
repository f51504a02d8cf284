//! Frames whole, in order and once; breaks.

use super::*;
use crate::{Random, Seeds, Shape};
use base::Rate;

const CLIENT: NodeId = NodeId(0);
const SERVER: NodeId = NodeId(1);
const UP: (NodeId, NodeId) = (CLIENT, SERVER);
const DOWN: (NodeId, NodeId) = (SERVER, CLIENT);

fn world(seed: u64, shape: Shape, segment_bytes: u64) -> Connections<u64> {
    let mut network = Network::new(Random::new(seed));
    network.join(CLIENT, SERVER, shape);
    Connections::new(network, segment_bytes, Duration::from_millis(20))
}

/// Everything that arrives up to `end`, with its time.
fn run(world: &mut Connections<u64>, end: Time) -> Vec<(Time, Arrival<u64>)> {
    let mut came = Vec::new();
    while let Some(at) = world.next_time().filter(|at| *at <= end) {
        while let Some(arrival) = world.poll(at) {
            came.push((at, arrival));
        }
    }
    came
}

#[test]
fn frames_come_whole_in_order_and_once_whatever_the_line_does() {
    Seeds::new("frames_come_whole_in_order_and_once", 0..200).run(|seed| {
        let mut random = Random::new(seed);
        let shape = Shape {
            jitter: Duration::from_millis(random.below(30)),
            loss: 0.3,
            duplication: 0.2,
            queue_bytes: random.within(100..5000),
            ..Shape::line(Duration::from_millis(10), Rate(100_000))
        };
        let mut world = world(seed, shape, 100);
        let ids = [(); 3].map(|()| world.connect(CLIENT, SERVER));
        for frame in 0..60 {
            let id = ids[frame as usize % 3];
            let ends = if frame % 2 == 0 { UP } else { DOWN };
            world.send(Time::from_millis(frame), id, ends, random.below(400), frame);
        }
        world.network().cut(Time::from_millis(70), CLIENT, SERVER);
        let mut came = run(&mut world, Time::from_millis(300));
        world.network().heal(CLIENT, SERVER);
        came.extend(run(&mut world, Time::from_secs(600)));
        for id in ids {
            for to in [CLIENT, SERVER] {
                let mine = |(_, a): &&(_, Arrival<u64>)| (a.connection, a.to) == (id, to);
                let frames: Vec<u64> = came.iter().filter(mine).map(|(_, a)| a.frame).collect();
                assert!(frames.is_sorted(), "out of order: {frames:?}");
                assert_eq!(frames.len(), 10);
            }
        }
    });
}

#[test]
fn connections_share_the_rate_of_their_line() {
    let shape = Shape::line(Duration::from_millis(10), Rate(1000));
    let mut world = world(1, shape, 100);
    for id in [(); 2].map(|()| world.connect(CLIENT, SERVER)) {
        world.send(Time::ZERO, id, UP, 1000, 0);
    }
    let last = run(&mut world, Time::from_secs(60))
        .pop()
        .expect("two frames")
        .0;
    assert_eq!(last, Time::from_millis(2010));
}

#[test]
fn a_closed_end_hears_nothing_and_what_it_sent_still_comes() {
    let mut world = world(1, Shape::line(Duration::from_secs(1), Rate(1000)), 100);
    let id = world.connect(CLIENT, SERVER);
    world.send(Time::ZERO, id, UP, 10, 1);
    world.send(Time::ZERO, id, DOWN, 10, 2);
    world.close(id, CLIENT);
    world.send(Time::ZERO, id, UP, 10, 3);
    let came = run(&mut world, Time::from_secs(60));
    assert_eq!(came.iter().map(|(_, a)| a.frame).collect::<Vec<_>>(), [1]);
}

#[test]
fn nothing_survives_a_reset() {
    let mut world = world(1, Shape::line(Duration::from_secs(1), Rate(1000)), 100);
    let id = world.connect(CLIENT, SERVER);
    world.send(Time::ZERO, id, UP, 10, 1);
    world.reset(id);
    assert_eq!(run(&mut world, Time::from_secs(60)), []);
}
