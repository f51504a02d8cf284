//! Pages: what is in them, whether they are well formed, and what hostile results do to them.

use super::*;
use crate::crash::{Place, Totals};
use crate::results::{Run, tests as samples};
use crate::states::Said;
use serde_json::json;

fn outcome() -> Outcome {
    let failure = Failure {
        workload: "one:<3>".into(),
        steps: "rename a b".into(),
        state: "3/prefix:1".parse().unwrap(),
        recovery: None,
        said: Said { begun: 2, done: 1 },
        findings: vec!["A/foo missing".into()],
        reduced: "3/missing:4".parse().unwrap(),
        writes: vec![Place {
            number: 4,
            offset: 4096,
            len: 512,
        }],
        replay: "azekura verify crash --target ext4 --mount-options a&b".into(),
    };
    Outcome {
        target: "ext4".into(),
        mount_options: "nobarrier".into(),
        totals: Totals {
            states: 100,
            bad_states: 25,
            sampled: 40,
            lost_acks: 30,
            ..Totals::default()
        },
        failures: vec![failure],
        ..Outcome::default()
    }
}

/// Every element that is opened is closed, in order: the page is also well-formed XML but for
/// its doctype and `meta`.
pub(super) fn is_balanced(page: &str) -> bool {
    let mut open = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("a tag ends");
        let word = tag.split([' ', '/']).find(|word| !word.is_empty());
        let word = word.unwrap_or_default();
        match tag {
            _ if tag.starts_with('!') || word == "meta" || tag.ends_with('/') => {}
            _ if tag.starts_with('/') => {
                if open.pop() != Some(word) {
                    return false;
                }
            }
            _ => open.push(word),
        }
    }
    open.is_empty()
}

#[test]
fn a_page_has_every_figure_and_is_well_formed() {
    let conditions = [("kernel", "6.1 <x>".to_owned())];
    let page = crash_page(&[outcome()], &conditions);
    assert!(is_balanced(&page), "{page}");
    for part in [
        "ext4 (nobarrier)",
        "<td class=\"n\">75</td>",
        "<td>25 (17.55 to 34.30 %; 40 drawn by chance)</td>",
        "one:&lt;3&gt;",
        "4 at 4096+512",
        "a&amp;b",
        "6.1 &lt;x&gt;",
        "<td class=\"n bad\">30</td>",
        "<svg",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("http"), "nothing is fetched");
}

#[test]
fn a_good_run_says_so() {
    let good = Outcome {
        failures: Vec::new(),
        ..outcome()
    };
    let page = crash_page(&[good], &[]);
    assert!(
        page.contains("Nothing that was promised was lost"),
        "{page}"
    );
}

/// What somebody may write into a result to have it run by who opens the report.
const EVIL: &str = "</td><script>alert(1)</script><img src=x onerror='x()'>\"&\u{202e}\u{7}";

/// Whether a page has anything that a browser would run, fetch or take for an element of ours.
fn is_harmless(page: &str) -> bool {
    let lower = page.to_lowercase();
    let is_elsewhere = [
        "<script",
        "<img",
        "<iframe",
        "<link",
        "javascript:",
        "url(",
        "@import",
    ];
    let has_other = is_elsewhere.iter().any(|part| lower.contains(part));
    !has_other && is_balanced(page) && !page.contains(['\u{202e}', '\u{7}'])
}

fn run(value: &serde_json::Value) -> Run {
    samples::read(value).unwrap()
}

/// Puts a text wherever a result has one that may be any.
fn spoil(value: &mut serde_json::Value, text: &str) {
    use serde_json::Value;
    // These are names that are known, or the result is refused.
    const KNOWN: [&str; 10] = [
        "kind", "target", "how", "measure", "name", "outcome", "state", "reduced", "by", "recovery",
    ];
    match value {
        Value::String(own) => text.clone_into(own),
        Value::Array(all) => all.iter_mut().for_each(|one| spoil(one, text)),
        Value::Object(all) => {
            let known = |key: &String| KNOWN.contains(&key.as_str());
            let others = all
                .iter_mut()
                .filter(|(key, value)| !known(key) || value.is_object());
            others.for_each(|(_, one)| spoil(one, text));
        }
        _ => {}
    }
}

#[test]
fn text_of_results_is_text_in_the_page_and_in_csv() {
    let target = format!("/{EVIL}");
    let rates: &[f64] = &[1e6, 2e6];
    let odd = samples::cell(
        &target,
        json!({"block_bytes": null}),
        &[("block_write", rates)],
    );
    let values = [
        samples::crash("L"),
        samples::speed("L", &[odd]),
        samples::tune("L"),
        samples::powercut("L"),
    ];
    let runs: Vec<Run> = values
        .into_iter()
        .map(|mut value| {
            value["left_out"] = json!([{"what": "x", "why": "y"}]);
            value["failed"] = match value["kind"] == "powercut" {
                true => json!(["x"]),
                false => json!([{"what": "x", "why": "y"}]),
            };
            spoil(&mut value, EVIL);
            if value["kind"] == "crash" {
                value["targets"][0]["target"] = json!(EVIL);
            }
            let mut run = run(&value);
            run.name = EVIL.to_owned();
            run
        })
        .collect();
    let page = whole_page(&runs, EVIL);
    // What is escaped is there: otherwise nothing would have been tried.
    assert!(page.matches("&lt;script&gt;").count() > 20, "{page}");
    assert!(is_harmless(&page), "{page}");
    assert!(!is_harmless(
        &page.replace("&lt;", "<").replace("&gt;", ">")
    ));
    let csv = csv(&rows(&runs));
    for line in csv.trim_end().split("\r\n") {
        assert_eq!(fields(line).len(), 22, "{line}");
    }
    let mut formula = samples::crash("=1+1");
    formula["targets"][0]["target"] = json!("@x");
    let csv = super::csv(&rows(&[run(&formula)]));
    assert!(
        csv.contains("\"'=1+1\"") && csv.contains("\"'@x\""),
        "{csv}"
    );
}

/// The fields of a line of CSV.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}

/// Speeds of two file systems with two block sizes, in one run.
fn speeds(kernel: &str, factor: f64) -> serde_json::Value {
    let rates = [90.0, 100.0, 110.0, 95.0, 105.0, 100.0].map(|rate| rate * 1e6 * factor);
    let doubled = rates.map(|rate| rate * 2.0);
    let files = [500.0; 6];
    let measures: [(&str, &[f64]); 4] = [
        ("block_write", &rates),
        ("block_read", &doubled),
        ("create", &files),
        ("delete", &files),
    ];
    let small: [(&str, &[f64]); 2] = [("block_write", &rates), ("block_read", &rates)];
    let cells = [
        samples::cell("ext4", json!({}), &measures),
        samples::cell("ext4", json!({"block_bytes": 1024}), &small),
        samples::cell("xfs", json!({}), &measures),
    ];
    samples::speed(kernel, &cells)
}

/// A cell with a block write of so many millions of bytes a second.
fn write(target: &str, more: serde_json::Value, millions: f64) -> serde_json::Value {
    let rate: &[f64] = &[millions * 1e6];
    samples::cell(target, more, &[("block_write", rate)])
}

#[test]
fn tables_and_figures_of_the_paper_have_the_known_values() {
    let sweep = [
        write("ext3", json!({"memory_bytes": 256 << 20}), 50.0),
        write("ext3", json!({"memory_bytes": 1 << 30}), 100.0),
        write("ext3", json!({"memory_bytes": 2_u64 << 30}), 120.0),
        write("ext3", json!({"memory_bytes": 4_u64 << 30}), 121.0),
        write("ext3", json!({"flush_seconds": 30.0}), 40.0),
        write("ext3", json!({"flush_seconds": 1.0}), 44.0),
        write(
            "ext3",
            json!({"settings": [{"name": "max_sectors_kb", "value": 32}]}),
            20.0,
        ),
        write(
            "ext3",
            json!({"settings": [{"name": "max_sectors_kb", "value": 64}]}),
            30.0,
        ),
    ];
    let values = [
        samples::crash("L1"),
        speeds("L1", 1.0),
        samples::speed("L1", &sweep),
        samples::tune("L1"),
        samples::powercut("6.1"),
        samples::cached_powercut("6.1"),
    ];
    let runs: Vec<Run> = values.iter().map(run).collect();
    let page = whole_page(&runs, "today");
    assert!(is_balanced(&page), "{page}");
    for number in [2, 3, 4, 7, 8, 10, 12] {
        let figure = format!("(the paper's figure {number})");
        assert!(page.contains(&figure), "{figure} is not in {page}");
    }
    assert!(!page.contains("figure 9)"), "there is no data for it");
    figures_of_reading_are_there_where_something_was_read(runs);
    for part in [
        // Table 5: 15 of 148, with the interval of the literature; length and content apart.
        "15/148<small>6 to 16 %</small><small>100 %, 20 %</small>",
        // A disk whose cache is lost is another row there, and another line of table 15.
        "<td>fsync</td><td>ext3, disk cache lost</td><td class=\"n bad\">15/148",
        "if the disk loses its cache, too</th><td>133 of 148",
        "left out: jfs: its kernel has no &lt;jfs&gt;",
        // Figure 2: a median with its interval, of six repeats.
        "<th scope=\"row\">xfs</th><td class=\"n\">–</td>\
         <td class=\"n\">100<small>90 to 110</small></td>",
        "<strong>Throughput of file systems</strong> (the paper's figure 2); n = 6",
        // Table 10: only reading is faster with larger blocks.
        "<th scope=\"row\">ext4</th><td class=\"n\">–</td><td class=\"n\">1.00</td>\
         <td class=\"n\">–</td><td class=\"n\">2.00</td>",
        // Table 13: from 50 to 120, and what is beyond 2 GiB does not count.
        "<td class=\"n\">140.00</td>",
        // Figure 8: four times the memory is twice as fast.
        "<th scope=\"row\">memory itself</th><td class=\"n\">1.0</td><td class=\"n\">4.0</td>\
         <td class=\"n\">8.0</td><td class=\"n\">16</td>",
        // Table 15: both halves of it. It has 105 states and tried 100, and none by chance.
        "25 of 100 (25.00 %; the first of more)",
        "Rank correlation of the two over 2 points: -1.00",
        "<code>azekura verify speed --json</code>",
        "5 repeats of 3 cells; 2 processors, load 0.05 before; caches dropped",
        "on a loaded machine",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

fn figures_of_reading_are_there_where_something_was_read(mut runs: Vec<Run>) {
    let read = |more: serde_json::Value, rate: f64| {
        samples::cell("xfs", more, &[("block_read", &[rate * 1e6])])
    };
    let sweep = [
        read(json!({"memory_bytes": 256 << 20}), 60.0),
        read(json!({"memory_bytes": 1 << 30}), 240.0),
        read(json!({"flush_seconds": 30.0}), 50.0),
        read(json!({"flush_seconds": 1.0}), 80.0),
    ];
    runs.push(run(&samples::speed("L1", &sweep)));
    let page = whole_page(&runs, "today");
    for part in [
        "(the paper's figure 6)",
        "(the paper's figure 9)",
        // The paper's 240 MB/s, and its 60 % from 30 s to 1 s.
        "<th scope=\"row\">xfs</th><td class=\"n\">60</td><td class=\"n\">240</td>",
        "<th scope=\"row\">xfs</th><td class=\"n\">50</td><td class=\"n\">80</td>",
        "<td class=\"n\">300.00</td>",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[test]
fn kernels_are_kept_apart_and_compared() {
    let runs = [
        run(&speeds("Linux 5.10", 1.0)),
        run(&speeds("Linux 6.18", 3.0)),
    ];
    let page = whole_page(&runs, "today");
    let (first, second) = page.split_once("<h2>Linux 6.18</h2>").expect(&page);
    let (_, first) = first.split_once("<h2>Linux 5.10</h2>").expect(&page);
    assert!(
        first.contains("<li>Run 1,") && !first.contains("<li>Run 2,"),
        "{first}"
    );
    let (second, both) = second
        .split_once("<h2>From Linux 5.10 to Linux 6.18</h2>")
        .expect(&page);
    assert!(
        second.contains("<li>Run 2,") && !second.contains("<li>Run 1,"),
        "{second}"
    );
    // Table 11: three times as fast.
    let row = "<th scope=\"row\">xfs</th><td class=\"n\">–</td><td class=\"n\">3.00</td>";
    assert!(both.contains(row) && both.contains("<li>Run 1,"), "{both}");
    // Nothing is compared where there is one kernel.
    assert!(!whole_page(&runs[..1], "").contains("table 11"));
}

/// Table 15 of a page of these results.
fn table_15(values: &[serde_json::Value]) -> String {
    let runs: Vec<Run> = values.iter().map(run).collect();
    let page = whole_page(&runs, "today");
    assert!(is_balanced(&page), "{page}");
    let table = page.split("<h3>File systems compared</h3>").nth(1);
    let table = table.and_then(|rest| rest.split("</table>").next());
    table.expect(&page).to_owned()
}

#[test]
fn what_was_gone_through_has_no_interval_and_what_was_drawn_has() {
    let mut all = samples::crash("L");
    all["targets"][0]["distinct_states"] = json!(100);
    let table = table_15(&[all.clone()]);
    assert!(table.contains("<td>25 of 100 (25.00 %; all that there are)</td>"));
    let rows = rows(&[run(&all)]);
    let found = (rows[0].measure, rows[0].value, rows[0].low, rows[0].high);
    assert_eq!(found, ("bad_states", 0.25, 0.25, 0.25));
    assert_eq!((rows[0].count, rows[0].confidence), (100, 0.0));
    let gone = (rows[1].measure, rows[1].count, rows[1].confidence);
    assert_eq!(gone, ("unmountable_states", 100, 0.0));
    all["targets"][0]["sampled"] = json!(60);
    let table = table_15(&[all.clone()]);
    assert!(table.contains("<td>25 of 100 (17.55 to 34.30 %; 60 drawn by chance)</td>"));
    let rows = super::rows(&[run(&all)]);
    assert!((rows[0].low - 0.1755).abs() < 5e-5 && rows[0].confidence == 0.95);
    // What ext2 loses is told, and is no broken promise.
    all["targets"][0]["target"] = json!("ext2");
    assert!(table_15(&[all]).contains("drawn by chance), which it may lose</td>"));
}

#[test]
fn a_file_system_that_promises_nothing_has_no_figure_of_what_it_kept() {
    let mut value = samples::powercut("6.1");
    value["cells"][0]["how"] = json!("fsync");
    let mut ext2 = value["cells"][0].clone();
    ext2["target"] = json!("ext2");
    value["cells"].as_array_mut().unwrap().push(ext2);
    let table = table_15(&[value]);
    let row = "<tr><th scope=\"row\">cuts that lost a file that was synced</th>\
               <td>– (not judged: fsync does not keep the name of a new file there)</td>\
               <td>133 of 148 (83.95 to 93.76 %)</td></tr>";
    assert!(table.contains(row), "{table}");
}

#[test]
fn cells_of_power_cuts_count_the_same_and_differences_say_what_they_are_worth() {
    let mut value = samples::powercut("6.1");
    let mut short = value["cells"][0].clone();
    short["flush_seconds"] = json!(1.0);
    // 15 of 16, and of those with the longer flush time 15 of 148.
    short["samples"].as_array_mut().unwrap().truncate(16);
    value["cells"].as_array_mut().unwrap().push(short);
    // A second result of the same cells, as a run makes that goes on, changes nothing.
    let table = table_15(&[value.clone(), value]);
    let (whole, more) = (
        "<td>51.94 % (40.73 to 55.86 %), the mean of 2 cells; 30 of 164 cuts</td>",
        "<td>+83.6 points (+60.8 to +90.1)</td>",
    );
    assert!(table.contains(whole) && table.contains(more), "{table}");
}

#[test]
fn speeds_of_runs_with_different_parameters_are_not_compared() {
    let mut other = speeds("Linux 6.18", 3.0);
    other["size_bytes"] = json!(10 << 20);
    let values = [speeds("Linux 5.10", 1.0), other.clone()];
    let runs: Vec<Run> = values.iter().map(run).collect();
    let page = whole_page(&runs, "today");
    let (_, both) = page.split_once("<h2>From Linux").expect(&page);
    let why = "<td>not comparable: written in blocks: 1.0 MiB and 10.0 MiB</td>";
    let row = format!("<th scope=\"row\">xfs</th><td class=\"n\">–</td>{why}");
    assert!(both.contains(&row) && both.contains("<li>Run 2,"), "{both}");
    // An older run with the same parameters is taken instead.
    let runs = [&values[0], &speeds("Linux 6.18", 2.0), &other].map(run);
    let page = whole_page(&runs, "today");
    let (_, both) = page.split_once("<h2>From Linux").expect(&page);
    let row = "<th scope=\"row\">xfs</th><td class=\"n\">–</td><td class=\"n\">2.00</td>";
    assert!(both.contains(row) && !both.contains("<li>Run 3,"), "{both}");
}

#[test]
fn file_systems_beside_each_other_say_where_they_were_measured_in_other_ways() {
    let cell = |target: &str, measures: &[(&str, f64)]| {
        let rates: Vec<[f64; 1]> = measures.iter().map(|(_, rate)| [rate * 1e6]).collect();
        let own = measures.iter().zip(&rates);
        let own: Vec<(&str, &[f64])> = own.map(|((name, _), rate)| (*name, &rate[..])).collect();
        samples::cell(target, json!({}), &own)
    };
    let both = [("cached_write", 300.0), ("block_write", 100.0)];
    let first = samples::speed("L", &[cell("ext4", &both)]);
    let same = samples::speed("L", &[cell("xfs", &both)]);
    let table = table_15(&[first.clone(), same]);
    assert!(table.contains("MB/s</th><td>100 (100 to 100)</td>") && !table.contains("comparable"));
    // The cache of xfs is not compared with the disk of another run.
    let mut other = samples::speed("L", &[cell("xfs", &both[..1])]);
    other["size_bytes"] = json!(10 << 20);
    let mut third = samples::speed("L", &[cell("xfs", &both[1..])]);
    third["is_loaded"] = json!(true);
    let table = table_15(&[first, other, third.clone()]);
    let why = "not comparable: written in blocks: 1.0 MiB and 10.0 MiB";
    // Nor are the two beside each other.
    let row = format!("done ({why})</th><td>3.0 times, run 1</td><td>{why}, run 2</td>");
    assert!(table.contains(&row), "{table}");
    let plain = "block write, MB/s</th><td>100 (100 to 100)</td><td>100 (100 to 100), loaded</td>";
    assert!(table.contains(plain), "{table}");
    third["size_bytes"] = json!(10 << 20);
    let first = samples::speed("L", &[cell("ext4", &both)]);
    let table = table_15(&[first, third]);
    let row = "block write, MB/s (not comparable: written in blocks: 1.0 MiB and 10.0 MiB)</th>\
               <td>100 (100 to 100), run 1</td><td>100 (100 to 100), loaded, run 2</td>";
    assert!(table.contains(row), "{table}");
}

#[test]
fn what_was_measured_on_a_loaded_machine_says_so_wherever_it_stands() {
    let mut value = speeds("L", 1.0);
    value["is_loaded"] = json!(true);
    let page = whole_page(&[run(&value)], "today");
    for part in [
        "<td class=\"bad\">on a loaded machine</td>",
        "<strong class=\"bad\">(on a loaded machine)</strong>",
        "class=\"c0 loaded\"",
        "xfs (loaded)",
        "These figures are no basis for a comparison",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let quiet = whole_page(&[run(&speeds("L", 1.0))], "today");
    assert!(!quiet.contains("on a loaded machine") && !quiet.contains("(loaded)"));
}

#[test]
fn rows_have_every_figure_with_its_conditions() {
    let values = [
        samples::powercut("6.1"),
        samples::tune("L"),
        speeds("L", 1.0),
    ];
    let runs: Vec<Run> = values.iter().map(run).collect();
    let rows = rows(&runs);
    let whole = &rows[0];
    assert_eq!(
        (whole.measure, whole.count, whole.how),
        ("whole", 148, "close")
    );
    assert_eq!(
        (whole.wait_seconds, whole.size_bytes),
        (Some(5.0), Some(1 << 20))
    );
    assert!(
        (whole.low - 0.0624).abs() < 5e-5 && whole.confidence == 0.95,
        "{whole:?}"
    );
    let recovery: Vec<_> = rows
        .iter()
        .filter(|row| row.measure == "recovery")
        .collect();
    assert_eq!(recovery.len(), 4, "{recovery:?}");
    assert!(recovery.iter().all(|row| row.is_loaded && row.run == 2));
    let last = rows.last().expect("there are rows");
    assert_eq!(
        (last.run, &*last.target, last.measure),
        (3, "xfs", "delete")
    );
    // Of six repeats the ends are the least and the greatest, with 96.9 %.
    let write = rows
        .iter()
        .find(|row| row.measure == "block_write" && row.run == 3);
    let write = write.expect("it was measured");
    assert_eq!((write.value, write.low, write.high), (1e8, 9e7, 1.1e8));
    assert_eq!((write.confidence, write.unit), (0.96875, "bytes/s"));
    let csv = csv(&rows);
    assert!(csv.starts_with("run,kind,kernel,"), "{csv}");
    let first = "\r\n1,powercut,\"Linux 6.1\",false,ext3,,,,30,,close,1048576,5,whole,share,148,";
    assert!(csv.contains(first), "{csv}");
    assert_eq!(csv.lines().count(), rows.len() + 1);
}

#[test]
fn no_results_are_a_page_without_tables() {
    let page = whole_page(&[], "today");
    assert!(is_balanced(&page) && !page.contains("<figure"), "{page}");
}
