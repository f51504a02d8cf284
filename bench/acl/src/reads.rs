//! Reads of the device that a first access to a file takes beyond its inode: judged for somebody
//! whom the list does not name, with rich ACLs on.
//!
//! A POSIX ACL that lies in the inode takes none. One that does not takes one, with rich ACLs or
//! without: who may do what is in it alone. So beside the share of files there is what the same
//! accesses take with rich ACLs off.

use crate::Cli;
use crate::lengths::shuffle;
use crate::lists::Service;
use crate::place::{open, served};
use crate::report::{Goal, Report};
use crate::tree::{Tree, somebody};
use anyhow::Result;
use base::{Principal, Rights};
use serde::Serialize;

/// The share of files that are to take none.
const GOAL: f64 = 0.99;

#[derive(Serialize)]
struct Counted {
    file_system: String,
    service: &'static str,
    is_rich: bool,
    files: usize,
    without: usize,
    reads: u64,
    reads_max: u64,
}

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let mut all = Vec::new();
    for service in Service::ALL {
        let lengths = service.lengths();
        let [ten, twenty] = [10, 20].map(|length| lengths.beyond(length) * 100.0);
        report.note(format!(
            "{}: {ten:.1} % of the lists have more than 10 entries, {twenty:.1} % more than 20",
            service.name()
        ));
    }
    for kind in &cli.file_systems {
        for service in Service::ALL {
            let tree = Tree::new(cli, *kind, service)?;
            let rich = count(cli, &tree, true)?;
            let plain = count(cli, &tree, false)?;
            let (share, beside) = (rich.share(), plain.share());
            let name = service.name();
            let what = format!("{kind}, {name}: files whose first access reads the inode alone");
            let text = format!(
                "**{:.2} %**; with rich ACLs off: {:.2} %; reads of all: {} and {}",
                share * 100.0,
                beside * 100.0,
                rich.reads,
                plain.reads
            );
            report.row(&what, &[share], Goal::at_least(GOAL, "at least 99 %"), text);
            for mut counted in [rich, plain] {
                (counted.file_system, counted.service) = (kind.to_string(), name);
                all.push(counted);
            }
        }
    }
    report.section("reads", &all)
}

impl Counted {
    fn share(&self) -> f64 {
        self.without as f64 / self.files as f64
    }
}

fn count(cli: &Cli, tree: &Tree, is_rich: bool) -> Result<Counted> {
    let mounted = tree.image.mount()?;
    let export = open(mounted.path())?;
    export.set_rich(is_rich);
    let mut order: Vec<usize> = (0..cli.files).collect();
    shuffle(&mut order, 1);
    let mut counted = Counted {
        file_system: String::new(),
        service: "",
        is_rich,
        files: cli.files,
        without: 0,
        reads: 0,
        reads_max: 0,
    };
    served(&export, |worker| {
        let (root, who) = (Principal::root(), somebody());
        for index in order {
            let (_, _, handle) = &tree.found.files[index];
            export.attributes(worker, &root, handle)?;
            let before = mounted.reads()?;
            let read = Rights {
                read: true,
                ..Rights::default()
            };
            export.check_access(worker, &who, handle, read)?;
            let reads = mounted.reads()? - before;
            counted.without += usize::from(reads == 0);
            counted.reads += reads;
            counted.reads_max = counted.reads_max.max(reads);
        }
        Ok(())
    })?;
    drop(export);
    Ok(counted)
}
