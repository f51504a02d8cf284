//! How often one chunk is asked for: by two versions of an image that are used at once, by two
//! processes with one cache, and after both were started again.

use super::image::Images;
use super::report::{Goal, Report};
use super::scattered::tar;
use super::site::{How, Site};
use anyhow::{Context, Result};
use figures::Random;
use std::fs;
use std::thread;

const RTT_MS: u64 = 25;
const FILES: usize = 300;

pub(super) fn measure(site: &Site, images: &Images, report: &mut Report) -> Result<()> {
    site.publish(&images.fresh, "once", "base:1")?;
    site.publish(&images.next, "once", "base:2")?;
    site.far(RTT_MS);
    site.server.counts.forget_chunks();
    let how = How {
        cache: Some("once"),
        ..How::default()
    };
    let url = site.url("once");
    let mut lists = Vec::new();
    for number in 0..2 {
        let list = site.path(&format!("once-{number}"));
        let mut random = Random::new(number);
        fs::write(&list, images.some(FILES, &mut random)?.join("\n"))?;
        lists.push(list);
    }
    for _ in 0..2 {
        let disks = [
            site.attach(&url, "base:1", how)?,
            site.attach(&url, "base:2", how)?,
        ];
        let roots = [disks[0].root()?, disks[1].root()?];
        thread::scope(|scope| -> Result<()> {
            // Both read the same, one the other way round.
            let other = scope.spawn(|| {
                lists
                    .iter()
                    .rev()
                    .try_for_each(|list| tar(roots[1], list).map(drop))
            });
            lists
                .iter()
                .try_for_each(|list| tar(roots[0], list).map(drop))?;
            other.join().ok().context("a thread has panicked")?
        })?;
        for disk in disks {
            disk.end()?;
        }
    }
    let (chunks, most) = site.server.counts.chunks_asked();
    let text = format!("{most}, of {chunks} chunks");
    report.row(
        "requests for one chunk, two versions in two processes, both started twice",
        Goal::at_most(1.0, "1"),
        most as f64,
        text,
    );
    Ok(())
}
