//! A run of power cuts as a page: the paper's table 5 with counts, intervals and contents.

use super::chart::interval;
use super::{Conditions, begun, escape};
use crate::outcome::Outcome;
use crate::powercut::{Cell, DiskCache, Summary};
use std::fmt::Write;

/// The page of a run of power cuts; `failed` are cells that were given up, in words.
#[must_use]
pub fn powercut_page(cells: &[Summary], failed: &[String], conditions: Conditions<'_>) -> String {
    let mut page = begun(
        "Power cuts",
        "What is there after the power was cut",
        conditions,
    );
    self::cells(&mut page, cells);
    if !failed.is_empty() {
        page.push_str("<h2>Given up</h2>\n<ul>\n");
        for words in failed {
            let _ = writeln!(page, "<li>{}</li>", escape(words));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Whether a file of a cell has to be there: the kernel has said that it is durable, and the file
/// system keeps the name of a new file that was synced.
pub(super) const fn is_promised(cell: &Cell) -> bool {
    cell.how.is_acknowledged() && cell.file_system.keeps_names()
}

/// A table of what became of the files of all cells.
pub(super) fn cells(page: &mut String, cells: &[Summary]) {
    page.push_str(
        "<table>\n<tr><th>cell</th><th>cuts</th><th>whole</th><th>interval</th><th></th>\
         <th>length</th><th>content</th><th>written in</th>",
    );
    for outcome in Outcome::ALL {
        let _ = write!(page, "<th>{}</th>", outcome.name().replace('_', " "));
    }
    page.push_str("<th>lost acknowledgements</th><th>flushes</th></tr>\n");
    for cell in cells {
        row(page, cell);
    }
    page.push_str(
        "</table>\n<p>Whole: the share of cuts after which every byte was there, with its interval \
         (Wilson, 95 %). Length and content: medians, as shares of what was written. What was not \
         synced may be lost; what was synced is counted as a lost acknowledgement, and where \
         nothing was promised (ext2 does not keep the name of a new file that was synced) there is \
         no such count. Flushes: how often a disk with a cache was told to keep what it had \
         (median); what it was not, is lost with the power.</p>\n",
    );
}

fn row(page: &mut String, cell: &Summary) {
    let (low, high) = (cell.interval.low, cell.interval.high);
    let share = cell.hits as f64 / cell.cuts.max(1) as f64;
    let _ = write!(
        page,
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{:.0} % to {:.0} %</td><td>{}</td><td class=\"n\">{:.0} %</td>\
         <td class=\"n\">{:.1} %</td><td class=\"n\">{:.2} s</td>",
        escape(&cell.cell.to_string()),
        cell.cuts,
        cell.hits,
        low * 100.0,
        high * 100.0,
        interval(share, low, high),
        cell.size_share * 100.0,
        cell.content_share * 100.0,
        cell.write_seconds,
    );
    for outcome in Outcome::ALL {
        let of = cell.outcomes.iter().find(|one| one.0 == outcome);
        let count = of.map_or(String::new(), |one| one.1.to_string());
        let _ = write!(page, "<td class=\"n\">{count}</td>");
    }
    let flushes = match cell.cell.disk_cache {
        DiskCache::None => "–".to_owned(),
        DiskCache::Lost => format!("{:.0}", cell.flushes),
    };
    let lost = match is_promised(&cell.cell) {
        true => super::figure(cell.lost_acks),
        false => "<td class=\"n\">–</td>".to_owned(),
    };
    let _ = writeln!(page, "{lost}<td class=\"n\">{flushes}</td></tr>");
}

#[cfg(test)]
mod tests {
    use super::super::tests::is_balanced;
    use super::*;
    use crate::powercut::{FileSystem, How, Sample, summary};
    use std::time::Duration;

    fn cell() -> Cell {
        Cell {
            file_system: FileSystem::Reiserfs,
            bytes: 10 << 20,
            wait: Duration::from_secs(5),
            flush_time: Duration::from_secs(30),
            how: How::Fsync,
            mount_options: "notail".into(),
            disk_cache: DiskCache::Lost,
        }
    }

    #[test]
    fn a_page_has_every_cell_and_is_well_formed() {
        let mut of = summary(&cell(), &[]);
        (of.cuts, of.hits, of.lost_acks, of.flushes) = (16, 8, 3, 14.0);
        of.outcomes = vec![(Outcome::Intact, 8), (Outcome::ZeroFilled, 8)];
        let failed = ["jfs: <silent>".to_owned()];
        let page = powercut_page(&[of], &failed, &[("kernel", "6.1".into())]);
        assert!(is_balanced(&page), "{page}");
        for part in [
            "reiserfs fsync 10.0 MiB, cut after 5 s, flush time 30 s, notail, disk cache lost",
            "<td class=\"n\">16</td><td class=\"n\">8</td>",
            "zero filled",
            "<td class=\"n bad\">3</td><td class=\"n\">14</td>",
            "jfs: &lt;silent&gt;",
            "<svg",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }

    #[test]
    fn what_nobody_promised_has_no_count_of_what_was_lost() {
        for file_system in FileSystem::ALL {
            for how in How::ALL {
                let cell = Cell {
                    file_system,
                    how,
                    ..cell()
                };
                // The run itself counts it in the same cases.
                let gone = Sample {
                    cell: cell.clone(),
                    outcome: Outcome::Missing,
                    size_share: 0.0,
                    content_share: 0.0,
                    write_time: Duration::ZERO,
                    cut_after: Duration::ZERO,
                    time: Duration::ZERO,
                    load: 0.0,
                    words: String::new(),
                    flushes: 0,
                    lost_bytes: 0,
                };
                assert_eq!(is_promised(&cell), gone.is_lost_acknowledgement(), "{cell}");
            }
        }
        let page = |file_system| {
            let cell = Cell {
                file_system,
                ..cell()
            };
            powercut_page(&[summary(&cell, &[])], &[], &[])
        };
        let none = "<td class=\"n\">–</td><td class=\"n\">0</td></tr>";
        assert!(page(FileSystem::Ext2).contains(none));
        assert!(!page(FileSystem::Ext3).contains(none));
    }
}
