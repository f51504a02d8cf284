//! `verify report` and `verify run`: results of real runs become a page, a run has its time and no
//! more, and one that was killed goes on where it was.

use crate::checks::{fails, json};
use crate::common::{Run, obstacle, run, text};
use crate::speed::Ground;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn verify(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
    command.arg("verify").args(arguments).env_remove("RUST_LOG");
    command.stdin(Stdio::null());
    command
}

fn report(arguments: &[&str]) -> Run {
    run(verify(&["report"]).args(arguments))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Real results in a directory: of a crash run of the store, and of a speed run of a directory.
fn results(ground: &Ground) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let crash = [
        "crash", "--target", "store", "--points", "40", "--seed", "7", "--json",
    ];
    let said = run(&mut verify(&crash)).ok();
    std::fs::write(directory.path().join("crash.json"), said).unwrap();
    let here = tempfile::tempdir().unwrap();
    let place = format!("{}/", text(here.path()));
    let speed = [
        "--target",
        &place,
        "--measure",
        "files",
        "--files",
        "50",
        "--repeat",
        "2",
    ];
    let said = ground
        .speed(&[&speed[..], &["--keep-caches", "--json"]].concat())
        .ok();
    std::fs::write(directory.path().join("speed.json"), said).unwrap();
    directory
}

#[test]
fn results_of_real_runs_are_one_page() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = Ground::new();
    let results = results(&ground);
    let out = tempfile::tempdir().unwrap();
    let (page, table) = (
        out.path().join("report.html"),
        out.path().join("figures.csv"),
    );
    let wanted = ["--out", text(&page), "--csv", text(&table), "--json"];
    // A result that is named twice counts once.
    let again = results.path().join("speed.json");
    let named = [text(results.path()), text(&again)];
    let found = json(report(&[&named[..], &wanted[..]].concat()));
    let runs = found["runs"].as_array().unwrap();
    let kinds: Vec<&Value> = runs.iter().map(|one| &one["kind"]).collect();
    assert_eq!(kinds, ["crash", "speed"], "{found}");
    let kernel = runs[0]["kernel"].as_str().unwrap();
    let command = "azekura verify crash --target store --points 40 --seed 7 --json";
    assert_eq!(runs[0]["command"], command);
    // Its medians are those of the run itself.
    let speed: Value = serde_json::from_str(&read(&results.path().join("speed.json"))).unwrap();
    let create = &speed["cells"][0]["measures"][0];
    let rows = found["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["measure"] == "create").unwrap();
    for (own, known) in [
        ("value", "median"),
        ("low", "low"),
        ("high", "high"),
        ("count", "count"),
    ] {
        assert_eq!(row[own], create[known], "{row} {create}");
    }
    let html = read(&page);
    for part in [
        "<h3>Crash states</h3>",
        "Small files",
        "Nothing that was promised was lost",
        "<svg viewBox",
        command,
        kernel,
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert_eq!(read(&table).lines().count(), rows.len() + 1);
    // Without --json, the runs are listed.
    let said = report(&[text(results.path()), "--out", text(&page)]).ok();
    assert!(
        said.contains("speed.json") && said.contains(kernel),
        "{said}"
    );
    assert_eq!(ground.left(), [""; 0]);
}

#[test]
fn what_is_no_result_is_refused_with_its_name_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("report.html");
    let whole = r#"{"kind":"crash","version":1,"kernel":"Linux 6","seed":1,"targets":[]}"#;
    let cases: [(&str, &str); 5] = [
        ("{\"kind\":", "no JSON"),
        (&whole[..40], "no JSON"),
        ("{\"states\": 7}", "no result of a run"),
        (
            &whole.replace("\"version\":1", "\"version\":2"),
            "version 2",
        ),
        (
            &whole.replace("\"targets\":[]", "\"targets\":7"),
            "cannot be a result",
        ),
    ];
    for (broken, why) in cases {
        let file = directory.path().join("one.json");
        std::fs::write(&file, broken).unwrap();
        std::fs::write(directory.path().join("other.json"), whole).unwrap();
        let refused = report(&[text(directory.path()), "--out", text(&page)]);
        fails(&refused, "AZ1210");
        let said = &refused.stderr;
        assert!(said.contains("one.json: ") && said.contains(why), "{said}");
        assert!(said.contains("hint: ") && !page.exists(), "{said}");
    }
    fails(
        &report(&["/nowhere/at/all.json", "--out", text(&page)]),
        "AZ0401",
    );
    assert_eq!(report(&[text(directory.path())]).status.code(), Some(2));
}

/// Where a browser must be there (`cargo xtask deep report`), what is lacking is an error, and the
/// page is that of a whole quick profile.
const REQUIRED: &str = "AZEKURA_BROWSER_REQUIRED";

/// A browser, if there is one.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut all = std::env::split_paths(&path).flat_map(|at| names.map(|name| at.join(name)));
    all.find(|path| path.is_file())
}

/// What the page looks like to the browser, and what it has fetched: added to a copy of it.
const LOOK: &str = "<script>
addEventListener('load', () => {
const area = (one) => { const box = one.getBoundingClientRect(); return box.width * box.height; };
const all = (one, what) => [...one.querySelectorAll(what)];
const found = {
  tables: all(document, 'table').map((one) => ({
    area: area(one), texts: all(one, 'td, th').filter((cell) => cell.textContent.trim()).length,
    rows: all(one, 'tr').length,
  })),
  charts: all(document, 'svg').map((one) => ({
    area: area(one), name: one.getAttribute('aria-label'),
    shapes: all(one, 'rect, circle, path, line, polyline').filter((shape) => {
      const box = shape.getBBox(); return box.width > 0 || box.height > 0;
    }).length,
  })),
  fetched: performance.getEntriesByType('resource').length,
  wide: document.documentElement.scrollWidth > 4 * window.innerWidth,
  rules: document.styleSheets[0].cssRules.length,
};
const said = document.createElement('pre');
said.id = 'found';
said.textContent = JSON.stringify(found);
document.body.append(said);
});
</script>";

/// The page as a browser without any network has it at last, and what it has said on its console.
fn opened(browser: &Path, page: &Path) -> (String, Vec<String>) {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.arg("--net").arg(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    command.args(["--enable-logging=stderr", "--log-level=0"]);
    command.arg(format!("--user-data-dir={}", text(profile.path())));
    let shown = run(command.arg(page));
    let console = shown.stderr.lines().filter(|line| line.contains("CONSOLE"));
    let console = console.map(str::to_owned).collect();
    (shown.ok(), console)
}

/// Looks at a copy of the page that measures itself.
fn look(browser: &Path, source: &str) -> (Value, Vec<String>) {
    let out = tempfile::tempdir().unwrap();
    let copy = out.path().join("copy.html");
    std::fs::write(&copy, source.replace("</body>", &format!("{LOOK}</body>"))).unwrap();
    let (dom, console) = opened(browser, &copy);
    let found = dom.split("<pre id=\"found\">").nth(1);
    let found = found.and_then(|rest| rest.split("</pre>").next());
    let found = found.unwrap_or_else(|| panic!("{console:?}: {dom}"));
    let plain = found
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    (serde_json::from_str(&plain).unwrap(), console)
}

/// A page with everything, if a browser must be there; otherwise of little.
fn page(ground: &Ground, out: &Path) -> PathBuf {
    if std::env::var_os(REQUIRED).is_some() {
        // Parts that do not fit or lack something are told; the page is there all the same.
        let ended = run(&mut profile(ground, out, &[]));
        assert!(parsed(&ended)["parts"].is_array(), "{}", ended.stderr);
        return out.join("report.html");
    }
    let results = results(ground);
    let page = out.join("report.html");
    report(&[text(results.path()), "--out", text(&page)]).ok();
    page
}

#[test]
fn a_browser_reads_the_page_as_it_was_meant() {
    let Some(browser) = browser() else {
        assert!(std::env::var_os(REQUIRED).is_none(), "there is no Chromium");
        println!("skipped: chromium is not installed");
        return;
    };
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = Ground::new();
    let out = tempfile::tempdir().unwrap();
    let page = page(&ground, out.path());
    let source = read(&page);
    let (dom, console) = opened(&browser, &page);
    assert_eq!(console, [""; 0]);
    // What is nested in a wrong way is put elsewhere, twice, or nowhere.
    for part in [
        "<table", "<tr", "<td", "<th", "<svg", "<rect", "<text", "<figure", "<section",
    ] {
        let count = |text: &str| text.matches(part).count();
        assert_eq!(count(&dom), count(&source), "{part}: {dom}");
    }
    assert!(
        dom.contains("<h3>Crash states</h3>") && dom.contains("</html>"),
        "{dom}"
    );
    let (found, console) = look(&browser, &source);
    assert_eq!(console, [""; 0]);
    assert_eq!(found["fetched"], 0, "{found}");
    assert_eq!(found["wide"], false, "{found}");
    assert!(found["rules"].as_u64() > Some(5), "{found}");
    for (what, inside, least) in [("tables", "texts", 2), ("charts", "shapes", 1)] {
        let all = found[what].as_array().unwrap();
        assert_eq!(all.len(), source.matches(&what_begins(what)).count());
        assert!(!all.is_empty(), "{found}");
        for one in all {
            assert!(one["area"].as_f64() > Some(100.0), "{what}: {one}");
            assert!(one[inside].as_u64() >= Some(least), "{what}: {one}");
        }
    }
    a_page_that_is_wrong_is_noticed(&browser, &source);
}

fn what_begins(what: &str) -> String {
    let tag = if what == "tables" { "<table" } else { "<svg" };
    tag.to_owned()
}

/// Otherwise nothing that a page does would be seen here.
fn a_page_that_is_wrong_is_noticed(browser: &Path, source: &str) {
    let wrong = "<img src=\"http://192.0.2.1/x.png\"><script>nothing.at.all</script>\
                 <table></table><svg></svg></body>";
    let (found, console) = look(browser, &source.replace("</body>", wrong));
    assert_eq!(console.len(), 1, "{console:?}");
    assert_eq!(found["fetched"], 1, "{found}");
    let last = |what: &str| found[what].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last("tables")["texts"], 0, "{found}");
    assert_eq!(last("charts")["shapes"], 0, "{found}");
}

/// A run of a profile, whose devices are made below the ground's directory.
fn profile(ground: &Ground, out: &Path, arguments: &[&str]) -> Command {
    let mut command = ground.verify("run", &["--out", text(out), "--json"]);
    command.args(arguments);
    command
}

fn part<'a>(found: &'a Value, name: &str) -> &'a Value {
    let mut parts = found["parts"].as_array().unwrap().iter();
    let part = parts.find(|one| one["part"] == name);
    part.unwrap_or_else(|| panic!("there is no {name} in {found}"))
}

fn parsed(run: &Run) -> Value {
    let parsed = serde_json::from_str(&run.stdout);
    parsed.unwrap_or_else(|error| panic!("{error}: {} {}", run.stdout, run.stderr))
}

#[test]
fn a_quick_run_has_its_time_and_says_what_did_not_fit() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = Ground::new();
    let out = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let ended = run(&mut profile(&ground, out.path(), &["--budget", "30s"]));
    let time = started.elapsed();
    let found = parsed(&ended);
    // What is to end has 10 s for it, and this machine is busy.
    assert!(time < Duration::from_secs(55), "{time:?}: {found}");
    let cuts = part(&found, "powercut");
    assert_eq!(cuts["state"], "left_out", "{found}");
    let why = cuts["words"].as_str().unwrap();
    assert!(why.contains("it needs 45.0 s"), "{why}");
    let mut has_failed = false;
    for one in found["parts"].as_array().unwrap() {
        let state = one["state"].as_str().unwrap();
        has_failed |= ["absent", "failed", "partly"].contains(&state);
        assert_ne!(one["words"], "", "{one}");
        assert_eq!(
            one["file"].is_null(),
            !["done", "early", "partly"].contains(&state),
            "{one}"
        );
    }
    assert_eq!(ended.status.success(), !has_failed, "{}", ended.stderr);
    // Every state of the first file system that was tried is in the report.
    let ext4 = part(&found, "crash-ext4");
    let file = ext4["file"].as_str().unwrap();
    let result: Value = serde_json::from_str(&read(Path::new(file))).unwrap();
    let states = result["states"].as_u64().unwrap();
    assert!(states > 0 && result["bad_states"] == 0, "{result}");
    let html = read(&out.path().join("report.html"));
    let shown = format!("<td class=\"n\">{states}</td>");
    assert!(
        html.contains(&shown) && html.contains("quick-crash-ext4.json"),
        "{html}"
    );
    assert!(
        html.contains("ended early") || ext4["state"] == "done",
        "{html}"
    );
    let rows = read(&out.path().join("report.csv"));
    assert!(rows.contains("bad_states,share"), "{rows}");
    assert_eq!(ground.left(), [""; 0]);
}

/// Begins a run of these parts and kills it when the first one is done and the second one has
/// begun. Until then, no other run begins here or elsewhere.
fn killed(ground: &Ground, out: &Path, parts: &[&str], done: &Path) {
    let mut first = profile(ground, out, &[parts, &["--budget", "3m"]].concat());
    first.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = first.spawn().unwrap();
    waits("tuning comes to no end", || done.exists());
    let elsewhere = tempfile::tempdir().unwrap();
    for place in [out, elsewhere.path()] {
        fails(&run(&mut profile(ground, place, parts)), "AZ1205");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The directory is the next run's to remove.
    let is_device = |one: &String| one.starts_with("/sys/");
    waits("a device stays", || !ground.left().iter().any(is_device));
}

fn waits(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_run_that_is_killed_goes_on_and_has_no_other_beside_it() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = Ground::new();
    let out = tempfile::tempdir().unwrap();
    let parts = ["--part", "tune,crash-ext4"];
    let done = out.path().join("quick-tune.json");
    killed(&ground, out.path(), &parts, &done);
    let result = read(&done);
    let planned = json(run(&mut profile(
        &ground,
        out.path(),
        &[&parts[..], &["--dry-run"]].concat(),
    )));
    assert_eq!(part(&planned, "tune")["state"], "kept", "{planned}");
    assert_eq!(
        part(&planned, "crash-ext4")["state"],
        "planned",
        "{planned}"
    );
    let found = json(run(&mut profile(
        &ground,
        out.path(),
        &[&parts[..], &["--budget", "14s"]].concat(),
    )));
    assert_eq!(part(&found, "tune")["state"], "kept", "{found}");
    let crash = &part(&found, "crash-ext4")["state"];
    assert!(*crash == "done" || *crash == "early", "{found}");
    assert_eq!(read(&done), result, "what was there was made again");
    let html = read(&out.path().join("report.html"));
    assert!(
        html.contains("Speed and recovery, run 1") && html.contains("Crash states"),
        "{html}"
    );
    let names = std::fs::read_dir(out.path())
        .unwrap()
        .map(|one| one.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    let known = [
        "quick-crash-ext4.json",
        "quick-tune.json",
        "report.csv",
        "report.html",
    ];
    assert_eq!(names, known);
    assert_eq!(ground.left(), [""; 0]);
}

#[test]
fn parts_and_profiles_that_do_not_exist_are_refused() {
    let out = tempfile::tempdir().unwrap();
    let place = out.path().join("results");
    let wrong = ["run", "--out", text(&place), "--part", "crash-fat"];
    let refused = run(&mut verify(&wrong));
    fails(&refused, "AZ1204");
    assert!(refused.stderr.contains("crash-ext4"), "{}", refused.stderr);
    let slow = run(&mut verify(&[
        "run",
        "--out",
        text(&place),
        "--profile",
        "slow",
    ]));
    assert_eq!(slow.status.code(), Some(2));
    let planned = run(&mut verify(&[
        "run",
        "--out",
        text(&place),
        "--profile",
        "full",
        "--dry-run",
    ]));
    assert!(planned.ok().contains("--cuts-max 100"));
    assert!(!place.exists(), "nothing is made of what is only asked");
}
