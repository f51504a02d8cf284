//! bonnie++: how it is called, and the line that it answers.
//!
//! It is what the paper measured with, and the only one of the programs that writes and reads
//! character by character. It empties no caches between its parts, so what it reads is in memory
//! ([`Measure::is_from_cache`]); its figures of writing and reading whole blocks are not used.

use super::work::{Measure, Value};

const MIB: u64 = 1 << 20;
/// What stands for a figure of something that was over before it could be timed.
const TOO_FAST: &str = "+++++";

/// A run in the current directory with a file of so many bytes, at least one mebibyte.
pub(super) fn arguments(bytes: u64, is_root: bool) -> Vec<String> {
    let mebibytes = bytes.div_ceil(MIB).max(1);
    let mut words = vec![
        "-d".to_owned(),
        ".".to_owned(),
        "-s".to_owned(),
        format!("{mebibytes}M"),
        // It insists on a file of twice the memory, and is told of none.
        "-r".to_owned(),
        "0".to_owned(),
        // How much goes by single characters; the size is a part of the word, or is none.
        format!("-f{mebibytes}"),
        // Small files are measured otherwise.
        "-n".to_owned(),
        "0".to_owned(),
        "-m".to_owned(),
        "azekura".to_owned(),
        "-q".to_owned(),
    ];
    if is_root {
        // It refuses to run as root unless that is said.
        words.extend(["-u".to_owned(), "root".to_owned()]);
    }
    words
}

/// What it measured.
///
/// # Errors
/// In words, if there is no line of a format that is known.
pub(super) fn values(said: &str) -> Result<Vec<Value>, String> {
    let mut lines = said.lines().rev();
    let line = lines
        .find(|line| line.matches(',').count() > 20)
        .ok_or("bonnie++ printed no line of figures")?;
    let fields: Vec<&str> = line.split(',').collect();
    // Version 1.98 of the format has two figures on seeks before the results.
    let first = match fields[0] {
        "1.96" | "1.97" => 7,
        "1.98" => 9,
        other => {
            return Err(format!(
                "bonnie++ printed format {other:?}, which is unknown"
            ));
        }
    };
    // Each figure has the processor time in percent behind it.
    let places = [
        (Measure::CharWrite, 0, 1024.0),
        (Measure::Rewrite, 2, 1024.0),
        (Measure::CharRead, 3, 1024.0),
        (Measure::Seeks, 5, 1.0),
    ];
    let mut values = Vec::new();
    for (measure, number, unit) in places {
        let at = first + 2 * number;
        let [figure, share] = [at, at + 1].map(|at| fields.get(at).copied().unwrap_or(""));
        if figure.is_empty() || figure == TOO_FAST {
            continue;
        }
        let wrong = || format!("bonnie++ printed {figure:?} for a figure");
        let figure: f64 = figure.parse().map_err(|_| wrong())?;
        if !(figure.is_finite() && figure > 0.0) {
            return Err(wrong());
        }
        values.push(Value {
            measure,
            rate: figure * unit,
            cpu: share.parse::<f64>().ok().map(|percent| percent / 100.0),
        });
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(said: &str) -> Vec<(Measure, u64, Option<u64>)> {
        let values = values(said).unwrap();
        let percent = |share: f64| (share * 100.0).round() as u64;
        values
            .iter()
            .map(|value| (value.measure, value.rate as u64, value.cpu.map(percent)))
            .collect()
    }

    #[test]
    fn the_line_of_figures_is_read() {
        // Of version 2.00a, with a file of 16 MiB.
        let said = "1.98,2.00a,ext4,1,1795654086,16M,,8192,5,1842,92,+++++,+++,+++++,+++,2743,86,\
                    +++++,+++,+++++,+++,,,,,,,,,,,,,,,,,,\
                    10100us,4045us,38us,5331us,4041us,8316us,,\n";
        let known = [
            (Measure::CharWrite, 1842 * 1024, Some(92)),
            (Measure::CharRead, 2743 * 1024, Some(86)),
        ];
        assert_eq!(shown(said), known);
    }

    #[test]
    fn an_older_format_is_read_too() {
        // As the manual of version 1.97 has it.
        let said = "writing...\n1.97,1.97,host,1,1335350000,1G,,680,98,57000,12,30000,6,1500,97,\
                    90000,9,250.5,5,16,,,,,900,3,,,,,,,,,,,1ms,2ms\n";
        let known = [
            (Measure::CharWrite, 680 * 1024, Some(98)),
            (Measure::Rewrite, 30_000 * 1024, Some(6)),
            (Measure::CharRead, 1500 * 1024, Some(97)),
            (Measure::Seeks, 250, Some(5)),
        ];
        assert_eq!(shown(said), known);
    }

    #[test]
    fn what_is_no_line_of_figures_is_refused() {
        let commas = ",".repeat(30);
        for said in ["", "bonnie++: no space", &format!("2.50{commas}")] {
            assert!(values(said).is_err(), "{said}");
        }
        let odd = format!("1.98,,,,,,,,,12x{commas}");
        assert!(values(&odd).unwrap_err().contains("12x"));
    }

    #[test]
    fn it_runs_as_root_only_if_that_is_said() {
        assert!(arguments(3 << 20, true).contains(&"root".to_owned()));
        let words = arguments(1, false).join(" ");
        assert!(words.contains("-s 1M") && !words.contains("-u"), "{words}");
    }
}
