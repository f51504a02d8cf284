//! `reserve`: a real server with a real store, also killed in between.

use crate::checks::{fails, json};
use crate::common::{Run, run, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server with a store of 64 MiB, without mounts.
struct Scene {
    directory: TempDir,
    server: Option<Child>,
    address: String,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            directory: tempfile::tempdir().unwrap(),
            server: None,
            address: "127.0.0.1:0".to_owned(),
        };
        scene.start();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
        command
            .env("AZEKURA_CONFIG_DIR", self.path("config"))
            .env_remove("RUST_LOG")
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    fn start(&mut self) {
        let mut server = self
            .command()
            .args(["server", "--init", "--store-size", "64MiB", "--with-parent"])
            .args(["--data", "srv", "--listen", &self.address])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut out = BufReader::new(server.stdout.take().unwrap());
        while !said.contains("ready on ") {
            said.clear();
            assert_ne!(out.read_line(&mut said).unwrap(), 0, "the server ended");
        }
        let rest = said.split_once("ready on ").unwrap().1;
        self.address = rest.split_once(',').unwrap().0.to_owned();
        self.server = Some(server);
    }

    fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// A command of somebody who has logged in with another configuration.
    fn user(&self, arguments: &[&str]) -> Run {
        let config = self.path("user");
        run(self
            .command()
            .env("AZEKURA_CONFIG_DIR", config)
            .args(arguments))
    }

    #[track_caller]
    fn reserve(&self, arguments: &[&str]) -> Run {
        let (verb, rest) = arguments.split_first().unwrap();
        let whole = ["reserve", verb, &self.address];
        run(self.command().args(whole).args(rest))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn names(list: &Value) -> Vec<&str> {
    let list = list["reservations"].as_array().unwrap();
    list.iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect()
}

fn secs(moment: &Value) -> i64 {
    let moment: jiff::Timestamp = moment.as_str().unwrap().parse().unwrap();
    moment.as_second()
}

/// A refusal: exit code 3, the offers in the hint.
#[track_caller]
fn refused(run: &Run) {
    assert_eq!(run.status.code(), Some(3), "{run:#?}");
    assert!(run.stderr.contains("code: AZ0901"), "{}", run.stderr);
}

#[test]
fn what_was_reserved_is_there_after_the_server_was_killed() {
    let mut scene = Scene::new();
    let asked = [
        "create", "--write", "1MB/s", "--space", "4MB", "--from", "now", "--for", "10m", "--name",
        "run42", "--json",
    ];
    let made = json(scene.reserve(&asked));
    assert_eq!(
        (&made["state"], &made["name"]),
        (&"active".into(), &"run42".into())
    );
    let ticket = made["tickets"][0]["ticket"].as_str().unwrap();
    assert!(ticket.starts_with("415a544b"), "a ticket's bytes: {ticket}");
    scene.kill();
    scene.start();
    let list = json(scene.reserve(&["list", "--json"]));
    assert_eq!(names(&list), ["run42"]);
    let again = json(scene.reserve(&["show", "run42", "--json"]));
    assert_eq!(again, made, "the same tickets, too");
    // The name is taken, and the space, which the store knows by itself.
    fails(&scene.reserve(&asked[..11]), "AZ0903");
    let much = ["create", "--space", "62MB", "--for", "1m", "--dry-run"];
    refused(&scene.reserve(&much));
    // Killed between giving back and asking again.
    scene.reserve(&["cancel", "run42"]).ok();
    scene.kill();
    scene.start();
    assert_eq!(names(&json(scene.reserve(&["list", "--json"]))), [""; 0]);
    fails(&scene.reserve(&["show", "run42"]), "AZ0902");
}

#[test]
fn space_for_files_is_held_for_good_and_given_back_after_the_window() {
    let mut scene = Scene::new();
    let volume = format!("{}/lab", scene.address);
    run(scene.command().args(["volume", "create", &volume])).ok();
    let reserve = |scene: &Scene, rest: &[&str]| {
        let whole = ["reserve", "create", &volume, "--space", "36MB", "--json"];
        run(scene.command().args(whole).args(rest))
    };
    let made = json(reserve(&scene, &["--for", "4s", "--name", "run42"]));
    assert_eq!(made["lifetime_seconds"], 0);
    let other = ["--from", "+1h", "--for", "1m", "--dry-run"];
    // Whatever files will have taken by then, they will keep.
    refused(&reserve(&scene, &other));
    scene.kill();
    scene.start();
    refused(&reserve(&scene, &other));
    // Given back, it is free when clocks that may be wrong agree on it.
    let admitted = |rest: &[&str]| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let run = reserve(&scene, rest);
            match run.status.success() {
                true => return json(run),
                false => refused(&run),
            }
            assert!(Instant::now() < deadline, "it is never given back");
            std::thread::sleep(Duration::from_millis(500));
        }
    };
    admitted(&other);
    let report = ["reserve", "report", &volume, "run42", "--json"];
    let report = json(run(scene.command().args(report)));
    assert_eq!(report["space_kept"], true, "{report}");
    // Released, it does not wait for the end of the window.
    admitted(&["--for", "20m", "--name", "run43"]);
    let release = ["reserve", "release", &volume, "run43"];
    run(scene.command().args(release)).ok();
    admitted(&["--for", "20m", "--name", "run44"]);
}

#[test]
fn a_refusal_says_what_is_short_and_the_offer_is_admitted() {
    let scene = Scene::new();
    let much = scene.reserve(&["create", "--write", "500GB/s", "--for", "1m", "--dry-run"]);
    refused(&much);
    assert!(
        much.stderr.contains("store ") && much.stderr.contains("writing "),
        "{much:#?}"
    );
    let much = [
        "create", "--write", "500GB/s", "--for", "1m", "--name", "much", "--json",
    ];
    let run = scene.reserve(&much);
    refused(&run);
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    let offers = said["refused"]["offers"].as_array().unwrap();
    let slower = offers
        .iter()
        .find(|offer| offer["kind"] == "slower")
        .unwrap();
    let rate = slower["write_bytes_per_second"].as_u64().unwrap();
    let all = format!("{rate}B/s");
    scene
        .reserve(&["create", "--write", &all, "--for", "1h", "--name", "all"])
        .ok();
    // Nothing is left now; an hour later there is.
    let later = scene.reserve(&["when", "--write", &all, "--for", "10m", "--json"]);
    let later = json(later);
    assert_eq!(later["state"], "possible");
    let shown = json(scene.reserve(&["show", "all", "--json"]));
    let after = secs(&shown["end"]);
    let start = secs(&later["start"]);
    assert!((after..after + 10).contains(&start), "{later}");
    let daily = [
        "create", "--write", &all, "--for", "10m", "--every", "24h", "--count", "2",
    ];
    refused(&scene.reserve(&daily));
    assert_eq!(names(&json(scene.reserve(&["list", "--json"]))), ["all"]);
    scene.reserve(&["release", "all"]).ok();
    fails(&scene.reserve(&["release", "all"]), "AZ0904");
}

#[test]
fn a_reservation_is_extended_reported_and_given_back() {
    let scene = Scene::new();
    scene
        .reserve(&["create", "--read", "1MB/s", "--for", "10m", "--name", "r"])
        .ok();
    let longer = json(scene.reserve(&["extend", "r", "--until", "+20m", "--json"]));
    let (start, end) = (secs(&longer["start"]), secs(&longer["end"]));
    assert!((1200..1260).contains(&(end - start)), "{longer}");
    fails(&scene.reserve(&["extend", "r", "--until", "+5m"]), "AZ0903");
    let picture = scene.path("report.svg");
    let report = ["report", "r", "--json", "--svg", text(&picture)];
    let report = json(scene.reserve(&report));
    let met = &report["windows_met"];
    match report["seconds"].as_u64().unwrap() {
        0 => assert!(met.is_null(), "{report}"),
        _ => assert_eq!(*met, 1.0),
    }
    assert_eq!(report["space_kept"], true);
    assert!(
        std::fs::read_to_string(&picture)
            .unwrap()
            .starts_with("<svg")
    );
    assert!(scene.reserve(&["report", "r"]).ok().contains("windows met"));
    let released = json(scene.reserve(&["release", "r", "--json"]));
    assert_eq!(released["state"], "released");
    assert_eq!(released["tickets"], Value::Array(Vec::new()));
    scene.reserve(&["cancel", "r", "--dry-run"]).ok();
    scene.reserve(&["cancel", "r"]).ok();
    fails(&scene.reserve(&["report", "r"]), "AZ0902");
}

#[test]
fn what_makes_no_sense_or_is_not_there_is_refused_with_its_code() {
    let scene = Scene::new();
    fails(&scene.reserve(&["create", "--for", "1m"]), "AZ0903");
    fails(&scene.reserve(&["create", "--write", "1MB/s"]), "AZ0903");
    let past = [
        "create",
        "--write",
        "1MB/s",
        "--from",
        "2001-01-01T00:00:00Z",
        "--for",
        "1m",
    ];
    fails(&scene.reserve(&past), "AZ0904");
    fails(&scene.reserve(&["show", "nothing"]), "AZ0902");
    // An export has rates, and no space.
    let export = scene.path("export");
    std::fs::create_dir(&export).unwrap();
    let volume = format!("{}/v", scene.address);
    let made = ["volume", "create", &volume, "--export", text(&export)];
    run(scene.command().args(made)).ok();
    let of_export = [
        "reserve", "create", &volume, "--space", "1MB", "--for", "1m",
    ];
    fails(&run(scene.command().args(of_export)), "AZ0905");
    let limits = json(scene.reserve(&["limits", "--unreserved", "99", "--allow", "7", "--json"]));
    assert_eq!(limits["unreserved_ppm"], 990_000);
    assert_eq!(limits["users"], serde_json::json!([7]));
    fails(
        &scene.reserve(&["limits", "--unreserved", "100", "--background", "1"]),
        "AZ0903",
    );
    assert!(scene.reserve(&["limits"]).ok().contains("99 %"));
}

#[test]
fn users_reserve_when_an_administrator_has_allowed_it() {
    let scene = Scene::new();
    let address = &scene.address;
    let join = ["join", "create", address, "--kind", "user:4711", "--json"];
    let join = json(run(scene.command().args(join)));
    let string = join["join_string"].as_str().unwrap();
    scene.user(&["login", address, string]).ok();
    let asked = [
        "reserve", "create", address, "--write", "1MB/s", "--for", "5m", "--name", "own", "--json",
    ];
    fails(&scene.user(&asked), "AZ0909");
    fails(
        &scene.user(&["reserve", "limits", address, "--allow", "4711"]),
        "AZ0909",
    );
    scene.reserve(&["limits", "--allow", "4711"]).ok();
    assert_eq!(json(scene.user(&asked))["holder"], 4711);
    scene
        .reserve(&[
            "create", "--write", "1MB/s", "--for", "5m", "--name", "other",
        ])
        .ok();
    let list = json(scene.user(&["reserve", "list", address, "--json"]));
    assert_eq!(names(&list), ["own"], "nobody sees what others have");
    fails(
        &scene.user(&["reserve", "cancel", address, "other"]),
        "AZ0902",
    );
    let list = json(scene.reserve(&["list", "--json"]));
    assert_eq!(names(&list).len(), 2, "but an administrator");
}

#[test]
fn a_server_whose_ledger_is_damaged_does_not_promise_anything_twice() {
    let mut scene = Scene::new();
    scene
        .reserve(&["create", "--write", "1MB/s", "--for", "5m"])
        .ok();
    scene.kill();
    let ledger = scene.path("srv/ledger.redb");
    std::fs::write(&ledger, b"something else").unwrap();
    let start = ["server", "--data", "srv", "--listen", "127.0.0.1:0"];
    let run = run(scene.command().args(start));
    fails(&run, "AZ0908");
}

#[test]
fn a_window_is_as_long_as_was_asked_for() {
    let scene = Scene::new();
    // The server has just been started, and may not have seen its stores yet.
    let made = json(scene.reserve(&[
        "create", "--write", "1MB/s", "--for", "10m", "--name", "run42", "--json",
    ]));
    let long = secs(&made["end"]) - secs(&made["start"]);
    assert!((600..=602).contains(&long), "{made}");
    // What is measured first takes nothing of it, either.
    let export = scene.path("export");
    std::fs::create_dir(&export).unwrap();
    let volume = format!("{}/v", scene.address);
    let create = ["volume", "create", &volume, "--export", text(&export)];
    run(scene.command().args(create)).ok();
    let asked = [
        "reserve", "create", &volume, "--read", "1MB/s", "--for", "1m", "--json",
    ];
    let made = run(scene.command().args(asked));
    if made.status.success() {
        let made = json(made);
        let long = secs(&made["end"]) - secs(&made["start"]);
        assert!((60..=62).contains(&long), "{made}");
    }
}

#[test]
fn a_list_says_where_reservations_are_and_the_hint_where_one_is() {
    let scene = Scene::new();
    let volume = format!("{}/lab", scene.address);
    run(scene.command().args(["volume", "create", &volume])).ok();
    let reserve = |place: &str, name: &str| {
        let asked = [
            "reserve", "create", place, "--write", "1MB/s", "--for", "5m",
        ];
        run(scene.command().args(asked).args(["--name", name])).ok();
    };
    reserve(&volume, "cam");
    reserve(&scene.address, "own");
    let all = json(scene.reserve(&["list", "--json"]));
    let all = all["reservations"].as_array().unwrap().clone();
    let of = |name: &str| all.iter().find(|one| one["name"] == name).unwrap()["volume"].clone();
    assert_eq!((of("cam"), of("own")), ("lab".into(), Value::Null));
    assert!(scene.reserve(&["list"]).ok().contains("VOLUME"));
    let list = run(scene.command().args(["reserve", "list", &volume, "--json"]));
    assert_eq!(names(&json(list)), ["cam"], "only its own");
    let lost = scene.reserve(&["show", "cam"]);
    fails(&lost, "AZ0902");
    assert!(
        lost.stderr.contains(&format!("`{volume}` cam")),
        "{lost:#?}"
    );
    let nowhere = format!("{}/nothing", scene.address);
    fails(
        &run(scene.command().args(["reserve", "list", &nowhere])),
        "AZ0301",
    );
    // Given back, it says when; tried, it says what.
    let tried = scene.reserve(&["release", "own", "--dry-run"]).ok();
    assert!(tried.contains("could be given back"), "{tried}");
    scene.reserve(&["release", "own"]).ok();
    assert!(scene.reserve(&["list"]).ok().contains("released 20"));
    assert!(
        scene
            .reserve(&["show", "own"])
            .ok()
            .contains("given back at 20")
    );
}

#[test]
fn a_volume_of_which_something_is_reserved_is_not_deleted() {
    let scene = Scene::new();
    let volume = format!("{}/volume1", scene.address);
    let azekura = |arguments: &[&str]| run(scene.command().args(arguments));
    azekura(&["volume", "create", &volume]).ok();
    let asked = ["--write", "1MB/s", "--for", "10m", "--name", "run42"];
    azekura(&[&["reserve", "create", &volume][..], &asked].concat()).ok();
    // A name with the word in it is no volume that is not there.
    fails(&azekura(&["reserve", "show", &volume, "volume2"]), "AZ0902");
    let refused = azekura(&["volume", "delete", &volume]);
    fails(&refused, "AZ0304");
    let words = &refused.stderr;
    assert!(
        words.contains("run42") && words.contains("reserve cancel"),
        "{words}"
    );
    azekura(&["reserve", "cancel", &volume, "run42"]).ok();
    azekura(&["volume", "delete", &volume]).ok();
}

#[test]
fn who_may_not_reserve_any_more_extends_nothing() {
    let scene = Scene::new();
    let join = ["join", "create", &scene.address, "--kind", "user:1000"];
    let join = run(scene.command().args(join)).ok();
    scene.user(&["login", &scene.address, join.trim()]).ok();
    scene.reserve(&["limits", "--allow", "1000"]).ok();
    let at = ["reserve", "create", &scene.address];
    let what = ["--write", "1MB/s", "--for", "5m", "--name", "own"];
    scene.user(&[&at[..], &what].concat()).ok();
    scene.reserve(&["limits", "--deny", "1000"]).ok();
    let extend = ["reserve", "extend", &scene.address, "own", "--until", "+1h"];
    fails(&scene.user(&extend), "AZ0909");
    // What was promised is kept, and given back by whoever has it.
    let cancel = ["reserve", "cancel", &scene.address, "own"];
    scene.user(&cancel).ok();
}

#[test]
fn names_that_cannot_be_read_are_refused() {
    let scene = Scene::new();
    for name in ["  ", "run\u{202e}42", "run\u{200b}", "a\tb", "a/b"] {
        let asked = ["create", "--write", "1MB/s", "--for", "5m", "--name", name];
        fails(&scene.reserve(&asked), "AZ0903");
    }
}

#[test]
fn status_says_how_much_is_left_for_who_has_no_reservation() {
    let scene = Scene::new();
    let left = || {
        let status = run(scene.command().args(["status", &scene.address, "--json"]));
        let store = json(status)["stores"][0].clone();
        let units = |key: &str| store[key].as_u64().unwrap();
        let unit = units("allocation_unit_bytes");
        let free = units("allocation_units_free") * unit;
        (free, units("allocation_units_unreserved") * unit)
    };
    let (free, before) = left();
    assert!(before <= free && before > 40_000_000, "{before} of {free}");
    scene
        .reserve(&["create", "--space", "30MB", "--for", "10m"])
        .ok();
    let (free, after) = left();
    assert!(free > 50_000_000, "nothing was written: {free}");
    assert!(after <= before - 30_000_000, "{after} of {before}");
    let page = run(scene.command().args(["status", &scene.address])).ok();
    assert!(page.contains("UNRESERVED"), "{page}");
}

#[test]
fn what_is_too_long_is_refused_at_once_with_its_bound() {
    let scene = Scene::new();
    let begun = Instant::now();
    let long = "n".repeat(64);
    let usage = |arguments: &[&str], bound: &str| {
        let run = run(scene.command().args(arguments));
        assert_eq!(run.status.code(), Some(2), "{run:#?}");
        assert!(run.stderr.contains(bound), "{bound}: {}", run.stderr);
    };
    let lab = format!("{}/lab", scene.address);
    let asked = [
        "reserve", "create", &lab, "--write", "1MB/s", "--for", "5m", "--name", &long,
    ];
    usage(&asked, "at most 63 bytes");
    usage(&["reserve", "show", &lab, &long], "at most 63 bytes");
    let far = format!("{}/{}", scene.address, "v".repeat(256));
    usage(&["volume", "create", &far], "at most 255 bytes");
    usage(&["reserve", "list", &far], "at most 255 bytes");
    usage(&["mount", &far, "mnt"], "at most 255 bytes");
    let stores: Vec<String> = (0..65).map(|one| format!("{one:032x}")).collect();
    let on = stores.iter().flat_map(|store| ["--on", store.as_str()]);
    let asked = ["reserve", "create", &lab, "--read", "1MB/s", "--for", "5m"];
    let asked: Vec<&str> = asked.into_iter().chain(on).collect();
    usage(&asked, "at most 64 stores");
    assert!(begun.elapsed() < Duration::from_secs(10), "nothing waits");
}

#[test]
fn each_refusal_has_its_cause_and_its_remedy() {
    let scene = Scene::new();
    let says = |arguments: &[&str], code: &str, part: &str| {
        let run = scene.reserve(arguments);
        assert!(run.stderr.contains(&format!("code: {code}")), "{run:#?}");
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
        run
    };
    let status = scene
        .command()
        .args(["status", &scene.address])
        .output()
        .unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    let row = status
        .lines()
        .skip_while(|line| !line.starts_with("STORE"))
        .nth(1);
    let store = row.unwrap().split_whitespace().last().unwrap().to_owned();
    let on = [
        "create", "--write", "1MB/s", "--for", "5m", "--name", "a", "--on", &store,
    ];
    scene.reserve(&on).ok();
    says(&on, "AZ0903", "another --name");
    says(&["extend", "a", "--until", "+1m"], "AZ0903", "present end");
    let span = [
        "create",
        "--write",
        "1MB/s",
        "--within",
        "now..+10m",
        "--for",
        "30m",
    ];
    says(&span, "AZ0903", "longer than the");
    let long = ["create", "--write", "1MB/s", "--for", "5000d"];
    says(&long, "AZ0903", "--every TIME");
    let often = [
        "create", "--write", "1MB/s", "--for", "5m", "--every", "1h", "--count", "4000",
    ];
    says(&often, "AZ0903", "--count");
    let both = ["limits", "--unreserved", "60", "--background", "60"];
    says(&both, "AZ0903", "at most 100");
    // Space, in bytes; it has no time.
    let space = ["create", "--space", "1GB", "--for", "5m", "--json"];
    let run = says(&space, "AZ0901", "B (");
    assert!(run.stderr.contains("--space"), "{}", run.stderr);
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(said["refused"]["from"], Value::Null);
    let shown = scene.reserve(&["limits"]).ok();
    assert!(
        shown.contains("5 %, servers' own") && shown.contains("90 % of"),
        "{shown}"
    );
    // Limits are named where they are the reason.
    let set = scene.reserve(&["limits", "--unreserved", "100"]);
    assert!(set.stderr.contains("nothing can be reserved"), "{set:#?}");
    let none = ["create", "--write", "1MB/s", "--for", "5m"];
    refused(&says(&none, "AZ0901", "limits leave 0.0 %"));
    // A rate without a unit is taken as it is, and remarked.
    scene.reserve(&["limits", "--unreserved", "0"]).ok();
    let little = scene.reserve(&["create", "--write", "10", "--for", "5m"]);
    assert!(little.stderr.contains("10MB/s"), "{little:#?}");
    little.ok();
}
