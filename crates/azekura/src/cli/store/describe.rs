//! What there is to say of a store, for people and for programs.

use super::shown;
use crate::errors::Result;
use crate::output;
use ::server::{Plan, QUICK_PPM};
use ::store::device::{Capability, Direction, FileDevice, MeasuredRate, TableError};
use ::store::{Core, Reserved, STORE_FORMAT_VERSION, Superblock, Usage};
use base::Rate;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// What there is to say of a store.
pub(super) struct Description {
    path: PathBuf,
    device: String,
    superblock: Superblock,
    format_version: u16,
    /// Entries that its log has had.
    commits: u64,
    is_one_superblock_lost: bool,
    usage: Usage,
    reserved: Reserved,
    capability: Result<Capability, TableError>,
}

impl Description {
    /// Of a store that is open.
    pub(super) fn of(device: &FileDevice, core: &Core) -> Result<Self> {
        let superblock = core.superblock().clone();
        Ok(Self {
            path: device.path().to_owned(),
            device: device.describe(),
            commits: core.durable_sequence(),
            is_one_superblock_lost: core.is_one_superblock_lost(),
            usage: core.usage(),
            reserved: core.reserved(super::now())?,
            capability: Capability::decode(&superblock.capability),
            format_version: core.format_version(),
            superblock,
        })
    }

    pub(super) fn print(&self, json: bool) -> Result<()> {
        if json {
            return output::json(&self.to_json());
        }
        output::write(&self.page())
    }

    fn to_json(&self) -> Value {
        let Superblock {
            layout, lifetimes, ..
        } = &self.superblock;
        let usage = &self.usage;
        json!({
            "path": self.path.to_string_lossy(),
            "store": self.superblock.store.to_string(),
            "format_version": self.format_version,
            "device": self.device,
            "device_bytes": layout.device_bytes,
            "allocation_unit_bytes": layout.au_bytes,
            "log_bytes": layout.log_bytes,
            "commits": self.commits,
            "is_one_superblock_lost": self.is_one_superblock_lost,
            "units": {
                "total": usage.total, "free": usage.free, "limbo": usage.limbo,
                "records": usage.records, "used": usage.used,
                "reserved": self.reserved.aus, "reserved_used": self.reserved.aus_used,
                "reservable": self.reserved.aus_for_ever,
                "reservable_for_an_hour": self.reserved.aus_for_an_hour,
            },
            "reservations": self.reserved.count,
            "default_lifetime_seconds": lifetimes.default_seconds,
            "longest_lifetime_seconds": lifetimes.longest_seconds,
            "renewals_max": lifetimes.renewals_max,
            "capability": self.capability.as_ref().ok().map(capability_json),
        })
    }

    fn page(&self) -> String {
        let layout = &self.superblock.layout;
        let usage = &self.usage;
        let units = |count: u64| output::size(count.saturating_mul(layout.au_bytes));
        let lines = [
            ("store", self.superblock.store.to_string()),
            ("on", format!("{}: {}", shown(&self.path), self.device)),
            ("format", self.format()),
            (
                "size",
                format!(
                    "{}, with {} allocation units of {} and a log of {}",
                    output::size(layout.device_bytes),
                    usage.total,
                    output::size(layout.au_bytes),
                    output::size(layout.log_bytes),
                ),
            ),
            (
                "space",
                format!(
                    "{} free, {} used, {} for records, {} in limbo",
                    units(usage.free),
                    units(usage.used),
                    units(usage.records),
                    units(usage.limbo),
                ),
            ),
            (
                "reservations",
                format!(
                    "{}, with {} now, of which {} are in use",
                    self.reserved.count,
                    units(self.reserved.aus),
                    units(self.reserved.aus_used),
                ),
            ),
            (
                "reservable",
                format!(
                    "{} from now on for an hour, {} without end",
                    units(self.reserved.aus_for_an_hour),
                    units(self.reserved.aus_for_ever),
                ),
            ),
            ("lifetimes", self.lifetimes()),
            ("commits", self.commits.to_string()),
            ("measured", self.measured()),
            ("promised", self.promised()),
        ];
        let page = lines.map(|(name, text)| format!("{name:<14}{text}\n"));
        let table = self.capability.as_ref().map(rate_table);
        page.concat() + &table.map_or_else(|_| String::new(), |table| format!("\n{table}"))
    }

    fn format(&self) -> String {
        let version = self.format_version;
        let mut text = format!("version {version}");
        if version < STORE_FORMAT_VERSION {
            text += &format!("; {STORE_FORMAT_VERSION} once it is written to");
        }
        if self.is_one_superblock_lost {
            text += "; one of its two superblocks is damaged, `azekura store check` says more";
        }
        text
    }

    fn lifetimes(&self) -> String {
        let lifetimes = &self.superblock.lifetimes;
        let lifetime = |seconds: Option<u64>, none: &str| {
            seconds.map_or_else(|| none.to_owned(), output::seconds)
        };
        format!(
            "default {}, longest {}, renewed {}",
            lifetime(lifetimes.default_seconds, "without end"),
            lifetime(lifetimes.longest_seconds, "any"),
            match lifetimes.renewals_max {
                Some(0) => "never".to_owned(),
                Some(times) => format!("at most {}", output::count(times.into(), "time")),
                None => "as often as one likes".to_owned(),
            },
        )
    }

    fn measured(&self) -> String {
        match &self.capability {
            Ok(capability) => format!(
                "over {} in samples of {}, each load for {} or more; a unit of {} is enough",
                output::size(capability.region_bytes),
                output::span(Duration::from_millis(u64::from(capability.sample_millis))),
                output::span(capability.least_time()),
                output::size(u64::from(capability.allocation_unit_bytes)),
            ),
            Err(TableError::Absent) => "not at all".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn promised(&self) -> String {
        let capability = self.capability.as_ref().ok();
        let plan = capability.and_then(|capability| Some((capability, Plan::of(capability)?)));
        let Some((capability, plan)) = plan else {
            return "no rate can be promised".to_owned();
        };
        let rate = |operation| Rate(plan.promised_bytes_per_second(operation));
        let rates = format!(
            "reading {}, or writing {}, to all reservations together",
            rate(Direction::Read),
            rate(Direction::Write)
        );
        match capability.is_quick() {
            true => format!("{rates};\n{:14}{}", "", caution()),
            false => rates,
        }
    }
}

/// What is to be said of a device that was measured for a moment only.
pub(in crate::cli) fn caution() -> String {
    format!(
        "measured for a moment only, so no more than {} % of what was found is promised;\n\
         {:14}`azekura store calibrate` measures for a minute, while no server has the store",
        QUICK_PPM / 10_000,
        "",
    )
}

fn capability_json(capability: &Capability) -> Value {
    let plan = Plan::of(capability);
    let promised = |operation| {
        plan.as_ref()
            .map_or(0, |plan| plan.promised_bytes_per_second(operation))
    };
    let rate_json = |rate: &MeasuredRate| {
        json!({
            "direction": match rate.direction {
                Direction::Read => "read",
                Direction::Write => "write",
            },
            "size_bytes": rate.size_bytes, "depth": rate.depth,
            "write_percent": rate.write_percent,
            "low_bytes_per_second": rate.low_bytes_per_second,
            "median_bytes_per_second": rate.median_bytes_per_second,
            "samples": rate.sample_count,
        })
    };
    json!({
        "allocation_unit_bytes": capability.allocation_unit_bytes,
        "region_bytes": capability.region_bytes,
        "sample_millis": capability.sample_millis,
        "is_quick": capability.is_quick(),
        "read_bytes_per_second": promised(Direction::Read),
        "write_bytes_per_second": promised(Direction::Write),
        "rates": capability.rates.iter().map(rate_json).collect::<Vec<_>>(),
    })
}

/// For each size, what was found at the depth that is best for it.
fn rate_table(capability: &Capability) -> String {
    let sizes: BTreeSet<u32> = capability
        .rates
        .iter()
        .map(|rate| rate.size_bytes)
        .collect();
    let best = |size: u32, direction: Direction, write_percent: u32| {
        let of_kind = |rate: &&MeasuredRate| {
            (rate.size_bytes, rate.direction, rate.write_percent)
                == (size, direction, write_percent)
        };
        let cells = capability.rates.iter().filter(of_kind);
        match cells.max_by_key(|rate| rate.low_bytes_per_second) {
            Some(rate) => [
                Rate(rate.low_bytes_per_second).to_string(),
                rate.depth.to_string(),
            ],
            None => ["-".to_owned(), "-".to_owned()],
        }
    };
    let rows: Vec<[String; 7]> = sizes
        .into_iter()
        .map(|size| {
            let [read, read_depth] = best(size, Direction::Read, 0);
            let [write, write_depth] = best(size, Direction::Write, 100);
            let [mixed_read, _] = best(size, Direction::Read, 50);
            let [mixed_write, _] = best(size, Direction::Write, 50);
            [
                output::size(u64::from(size)),
                read,
                read_depth,
                write,
                write_depth,
                mixed_read,
                mixed_write,
            ]
        })
        .collect();
    output::table(
        [
            "REQUEST",
            "READ",
            "DEPTH",
            "WRITE",
            "DEPTH",
            "READ BESIDE WRITE",
            "WRITE BESIDE READ",
        ],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_table_has_the_best_depth_of_each_size() {
        let rate = |direction, write_percent, depth, low| MeasuredRate {
            direction,
            size_bytes: 65536,
            depth,
            write_percent,
            low_bytes_per_second: low,
            median_bytes_per_second: low,
            sample_count: 4,
        };
        let capability = Capability {
            allocation_unit_bytes: 65536,
            sample_millis: 60,
            region_bytes: 1 << 30,
            rates: vec![
                rate(Direction::Read, 0, 1, 100_000_000),
                rate(Direction::Read, 0, 8, 900_000_000),
                rate(Direction::Read, 50, 8, 300_000_000),
                rate(Direction::Write, 100, 4, 500_000_000),
            ],
        };
        expect![[r#"
            REQUEST   READ        DEPTH  WRITE       DEPTH  READ BESIDE WRITE  WRITE BESIDE READ
            64.0 KiB  900.0 MB/s      8  500.0 MB/s      4         300.0 MB/s  -
        "#]]
        .assert_eq(&rate_table(&capability));
    }
}
