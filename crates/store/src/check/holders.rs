//! Holders: what they use, and the lists by which their ends are found.

use super::bytes::for_each;
use super::records::Derived;
use super::{Kind, Mend};
use crate::StoreError;
use crate::core::Core;
use crate::key::{Key, Value};
use crate::record::{Holder, decode, encode};
use crate::reserve::{is_pool, pool_end};
use base::ObjectId;
use reservation::{Interval, Moment};
use std::collections::{BTreeMap, BTreeSet};

/// Adds what is wrong with holders that use so many AUs and records (S1), and what would be right.
pub(super) fn derive(
    core: &Core,
    held: &BTreeMap<u64, (u64, u64)>,
    out: &mut Derived,
) -> Result<(), StoreError> {
    let mut there = BTreeMap::new();
    let members = Key::Member(0, ObjectId([0; 16]));
    for_each(core, &Key::Holder(0), &members, |key, value| {
        if let Key::Holder(id) = key {
            there.insert(*id, decode::<Holder>(value).ok());
        }
    })?;
    let lists = Lists::read(core)?;
    let mut holders = BTreeMap::new();
    let all: BTreeSet<u64> = held.keys().chain(there.keys()).copied().collect();
    for id in all {
        let used = held.get(&id).copied().unwrap_or_default();
        let holder = match there.get(&id) {
            Some(Some(holder)) => counted(id, *holder, used, out),
            Some(None) => {
                let what = format!("the record of holder {id} cannot be understood");
                out.find(Kind::Record, Mend::Impossible, what);
                continue;
            }
            None => lists.rebuilt(id, used, out),
        };
        holders.insert(id, holder);
    }
    lists.compare(&holders, out);
    Ok(())
}

/// A holder that uses what it is said to use, and no more than it has.
fn counted(id: u64, mut holder: Holder, (aus, records): (u64, u64), out: &mut Derived) -> Holder {
    if (aus, records) != (holder.aus_used, holder.records_used) {
        let what = format!(
            "holder {id} uses {aus} AUs and {records} records, and not {} and {}",
            holder.aus_used, holder.records_used
        );
        (holder.aus_used, holder.records_used) = (aus, records);
        out.change(Kind::Derived, Key::Holder(id), Some(encode(&holder)), what);
    }
    if !is_pool(id) && (aus > holder.aus || records > holder.records) {
        let what = format!("reservation {id} uses more than it has");
        out.find(Kind::Record, Mend::Impossible, what);
    }
    holder
}

/// The lists by which ends are found: seconds and holders, and holders that are over.
struct Lists {
    ends: BTreeSet<(u64, u64)>,
    over: BTreeSet<u64>,
}

impl Lists {
    fn read(core: &Core) -> Result<Self, StoreError> {
        let (mut ends, mut over) = (BTreeSet::new(), BTreeSet::new());
        for_each(core, &Key::End(0, 0), &Key::Lost(0), |key, _| match key {
            Key::End(second, id) => drop(ends.insert((*second, *id))),
            Key::Over(id) => drop(over.insert(*id)),
            _ => {}
        })?;
        Ok(Self { ends, over })
    }

    /// A holder whose record is lost. Of a pool everything is known. A reservation keeps what it
    /// uses, up to the end that is on the list, without end if it is not.
    fn rebuilt(&self, id: u64, (aus, records): (u64, u64), out: &mut Derived) -> Holder {
        let listed = self.ends.iter().find(|(_, other)| *other == id);
        let listed = listed.map(|(second, _)| Moment::from_secs(*second));
        let end = match is_pool(id) {
            true => pool_end(id),
            false => listed.unwrap_or(Moment::FOREVER),
        };
        let start = Moment::from_secs(0);
        let interval = Interval::new(start, end).or(Interval::unlimited(start));
        let holder = Holder {
            interval: interval.expect("all of time is an interval"),
            aus: if is_pool(id) { 0 } else { aus },
            records: if is_pool(id) { 0 } else { records },
            aus_used: aus,
            records_used: records,
            is_over: self.over.contains(&id),
        };
        let what = match is_pool(id) {
            true => format!("the record of holder {id} is lost"),
            false => format!("what reservation {id} has beside what it uses is lost"),
        };
        out.change(Kind::Derived, Key::Holder(id), Some(encode(&holder)), what);
        holder
    }

    fn compare(self, holders: &BTreeMap<u64, Holder>, out: &mut Derived) {
        let end = |(id, holder): (&u64, &Holder)| (holder.interval.end().as_secs(), *id);
        let live = holders.iter().filter(|(_, holder)| !holder.is_over);
        let ends: BTreeSet<(u64, u64)> = live.map(end).collect();
        let nothing = || Some(Value::from([]));
        for (second, id) in ends.symmetric_difference(&self.ends) {
            let is_missing = ends.contains(&(*second, *id));
            let wrong = if is_missing { "not " } else { "" };
            let what = format!("second {second} is {wrong}on the list of ends, for holder {id}");
            let value = nothing().filter(|_| is_missing);
            out.change(Kind::Derived, Key::End(*second, *id), value, what);
        }
        let over = holders.iter().filter(|(_, holder)| holder.is_over);
        let over: BTreeSet<u64> = over.map(|(id, _)| *id).collect();
        for id in over.symmetric_difference(&self.over) {
            let is_missing = over.contains(id);
            let wrong = if is_missing { "not " } else { "" };
            let what = format!("holder {id} is {wrong}on the list of what is over");
            let value = nothing().filter(|_| is_missing);
            out.change(Kind::Derived, Key::Over(*id), value, what);
        }
    }
}
