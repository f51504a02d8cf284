//! fio: how it is called, and what it answers.

use super::work::{Measure, Value};
use serde::Deserialize;

/// A sequential write or read of a file, in the directory in which it is run.
pub(super) fn arguments(is_write: bool, bytes: u64, io_bytes: u64) -> Vec<String> {
    let direction = if is_write { "write" } else { "read" };
    let mut arguments = vec![
        "--name=azekura".to_owned(),
        "--filename=data".to_owned(),
        format!("--rw={direction}"),
        format!("--size={bytes}"),
        format!("--bs={io_bytes}"),
        "--ioengine=psync".to_owned(),
        // Space that is given ahead would make it another workload.
        "--fallocate=none".to_owned(),
        // One process, which ends with the run.
        "--thread".to_owned(),
        "--output-format=json".to_owned(),
    ];
    if is_write {
        arguments.push("--end_fsync=1".to_owned());
    }
    arguments
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i64,
    read: Direction,
    write: Direction,
    /// In percent of the time of the job.
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    bw_bytes: f64,
    total_ios: u64,
    lat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    mean: f64,
}

/// What it measured. A write is two figures: how fast the calls took the data, and how fast it
/// was on the disk.
///
/// # Errors
/// In words, if it is no report of a job that has moved something.
pub(super) fn values(is_write: bool, said: &str) -> Result<Vec<Value>, String> {
    // Warnings come before the report.
    let from = said.find('{').ok_or("fio printed no report")?;
    let report = serde_json::Deserializer::from_str(&said[from..])
        .into_iter::<Report>()
        .next();
    let report = report.ok_or("fio printed no report")?;
    let report = report.map_err(|error| format!("the report of fio: {error}"))?;
    let [job] = &*report.jobs else {
        return Err(format!("fio reports {} jobs", report.jobs.len()));
    };
    if job.error != 0 {
        return Err(format!("fio failed with error {}", job.error));
    }
    let moved = if is_write { &job.write } else { &job.read };
    let seconds = moved.lat_ns.mean * moved.total_ios as f64 / 1e9;
    let whole = [moved.bw_bytes, seconds];
    if whole
        .iter()
        .any(|figure| !(figure.is_finite() && *figure > 0.0))
    {
        return Err("fio has moved nothing".to_owned());
    }
    let share = (job.usr_cpu + job.sys_cpu) / 100.0;
    let cpu = share.is_finite().then_some(share);
    let value = |measure, rate| Value { measure, rate, cpu };
    Ok(match is_write {
        true => vec![
            value(Measure::BlockWrite, moved.bw_bytes),
            value(Measure::CachedWrite, moved.io_bytes as f64 / seconds),
        ],
        false => vec![value(Measure::BlockRead, moved.bw_bytes)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of fio 3.33, 64 MiB in pieces of 1 MiB on ext4, without what is not read.
    const SAID: &str = r#"fio: this is a warning
{
  "fio version" : "fio-3.33",
  "timestamp" : 1795672451,
  "jobs" : [
    {
      "jobname" : "azekura",
      "error" : 0,
      "eta" : 2147483647,
      "read" : {
        "io_bytes" : 0, "bw_bytes" : 0, "total_ios" : 0, "runtime" : 0,
        "lat_ns" : { "min" : 0, "max" : 0, "mean" : 0.000000, "N" : 0 }
      },
      "write" : {
        "io_bytes" : 67108864, "bw_bytes" : 466033777, "total_ios" : 64, "runtime" : 144,
        "lat_ns" : { "min" : 101422, "max" : 5660748, "mean" : 996213.406250, "N" : 64 }
      },
      "job_runtime" : 143,
      "usr_cpu" : 0.500000,
      "sys_cpu" : 38.500000,
      "ctx" : 21
    }
  ],
  "disk_util" : []
}
"#;

    #[test]
    fn a_report_is_read() {
        let values = values(true, SAID).unwrap();
        let rates: Vec<(Measure, u64)> = values
            .iter()
            .map(|value| (value.measure, value.rate as u64))
            .collect();
        let known = [
            (Measure::BlockWrite, 466_033_777),
            (Measure::CachedWrite, 1_052_561_623),
        ];
        assert_eq!(rates, known);
        assert!(
            values.iter().all(|value| value.cpu == Some(0.39)),
            "{values:?}"
        );
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        let refused = |is_write, said: &str| values(is_write, said).unwrap_err();
        assert!(refused(false, SAID).contains("nothing"));
        let failed = SAID.replace("\"error\" : 0", "\"error\" : 28");
        assert!(refused(true, &failed).contains("error 28"));
        for said in [
            "",
            "fio: out of memory",
            "{}",
            "{\"jobs\": []}",
            "{\"jobs\": 3",
        ] {
            assert!(!refused(true, said).is_empty(), "{said}");
        }
    }

    #[test]
    fn a_write_ends_on_the_disk() {
        let sync = "--end_fsync=1".to_owned();
        assert!(arguments(true, 1 << 20, 4096).contains(&sync));
        let read = arguments(false, 1 << 20, 4096);
        assert!(!read.contains(&sync) && read.contains(&"--size=1048576".to_owned()));
    }
}
