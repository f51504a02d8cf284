//! `azekura reserve split`: parts of a ticket, for workers. No server is asked.
//!
//! A part has terms within those of the whole ([`Ticket::narrow`]), and servers charge what is done
//! with it to the whole. A file has one ticket for each server; all of them are divided alike.

use super::create::{getrandom, invalid};
use super::shown::moment;
use super::time::When;
use crate::cli::tickets::{TicketFile, hex};
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use base::ticket::{Coordinate, Slice, SplitError, Terms, Ticket};
use base::{ByteSize, Rate, TicketId};
use jiff::Zoned;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most parts at once.
const PARTS_MAX: i64 = 1000;
/// A whole in millionths.
const WHOLE_PPM: u64 = 1_000_000;

/// Divide a ticket among workers, without asking a server
///
/// Each part is a file as `mount --ticket` takes it. It never has more than the whole, whatever it
/// says, and all parts have together no more than the whole. What is left out is as in the whole;
/// the space goes with the share.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("part").required(true).multiple(true)
    .args(["parts", "read", "write", "share", "space", "from", "until"])))]
#[command(after_help = "\
Examples:
  azekura reserve split cam.json --parts 4 --out workers
  azekura reserve split cam.json --write 5MB/s --until +1h --name night")]
pub(in crate::cli) struct Split {
    /// What `azekura reserve create --json` has printed, or a part of it; - for standard input
    #[arg(value_name = "TICKET_FILE")]
    ticket: PathBuf,
    /// So many equal parts, which are together the whole
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=PARTS_MAX),
        conflicts_with_all = ["read", "write", "share", "space", "from", "until"])]
    parts: Option<u32>,
    /// One part, with so much of the rate of reading
    #[arg(long, value_name = "RATE", conflicts_with = "share")]
    read: Option<Rate>,
    /// One part, with so much of the rate of writing; if both rates were reserved, a part has the
    /// same share of both, and the larger one counts
    #[arg(long, value_name = "RATE", conflicts_with = "share")]
    write: Option<Rate>,
    /// One part, with so much of the rates, in percent
    #[arg(long, value_name = "PERCENT")]
    share: Option<Percent>,
    /// One part, with so much of the space
    #[arg(long, value_name = "SIZE")]
    space: Option<ByteSize>,
    /// One part, from then on
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<When>,
    /// One part, until then
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<When>,
    /// Directory for the files
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// How the files are called: NAME-1.json, NAME-2.json [default: as TICKET_FILE]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only check, and say what the parts would be
    #[arg(long)]
    dry_run: bool,
    /// Print JSON, without the tickets
    #[arg(long)]
    json: bool,
}

/// A part of a hundred, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Percent(u64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim_end_matches('%').trim().parse::<f64>();
        match number {
            // Whether it is more than the whole is said where parts are.
            Ok(percent) if percent > 0.0 && percent < 1e6 => {
                Ok(Self((percent * 10_000.0).round() as u64))
            }
            _ => Err("a share is a number of percent above 0, such as 25 or 12.5".to_owned()),
        }
    }
}

/// `part` of `whole`.
#[derive(Clone, Copy, Debug)]
struct Fraction {
    part: u64,
    whole: u64,
}

impl Fraction {
    const ALL: Self = Self { part: 1, whole: 1 };

    fn of(self, amount: u64) -> u64 {
        let product = u128::from(amount) * u128::from(self.part);
        u64::try_from(product / u128::from(self.whole)).unwrap_or(u64::MAX)
    }

    /// Rounded up.
    fn of_at_least(self, amount: u64) -> u64 {
        let product = u128::from(amount) * u128::from(self.part);
        u64::try_from(product.div_ceil(u128::from(self.whole))).unwrap_or(u64::MAX)
    }

    fn is_more(self, than: Self) -> bool {
        let cross = |a: Self, b: Self| u128::from(a.part) * u128::from(b.whole);
        cross(self, than) > cross(than, self)
    }

    fn percent(self) -> f64 {
        100.0 * self.part as f64 / self.whole as f64
    }
}

/// How one part differs from the whole.
struct Narrow {
    share: Fraction,
    space: Fraction,
    start_secs: Option<u64>,
    end_secs: Option<u64>,
}

/// A part, and how it is written.
struct Part {
    id: TicketId,
    path: PathBuf,
    share: Fraction,
    value: Value,
}

impl Split {
    pub(super) fn run(self) -> Result<()> {
        let file = TicketFile::read(&self.ticket)?;
        let read = |bytes: &Vec<u8>| {
            let ticket = Ticket::from_bytes(bytes);
            ticket.map_err(|error| {
                let why = format!("{}: a ticket is damaged: {error}", file.shown);
                Failure::new(Code::BadTicket, why)
            })
        };
        let whole: Vec<Ticket> = file.tickets.iter().map(read).collect::<Result<_>>()?;
        let parts = match self.parts {
            Some(count) => self.equal(&file, &whole, count)?,
            None => vec![self.narrowed(&file, &whole)?],
        };
        match self.dry_run {
            true => parts.iter().try_for_each(|part| free(&part.path))?,
            false => write_all(&parts)?,
        }
        self.show(&parts)
    }

    fn equal(&self, file: &TicketFile, whole: &[Ticket], count: u32) -> Result<Vec<Part>> {
        let ids = (0..count).map(|_| identity());
        let ids: Vec<TicketId> = ids.collect::<Result<_>>()?;
        let split = whole.iter().map(|ticket| ticket.split(&ids));
        let split: Vec<Vec<Ticket>> = split.collect::<Result<_, _>>().map_err(refused)?;
        let share = Fraction {
            part: 1,
            whole: u64::from(count),
        };
        let parts = ids.iter().enumerate().map(|(at, id)| {
            let tickets: Vec<&Ticket> = split.iter().map(|parts| &parts[at]).collect();
            worth_something(&tickets, whole)?;
            let space = share.of(number(file, "space_bytes").unwrap_or(0));
            Ok(Part {
                id: *id,
                path: self.path(file, at + 1),
                share,
                value: document(file, *id, &tickets, share, space),
            })
        });
        parts.collect()
    }

    fn narrowed(&self, file: &TicketFile, whole: &[Ticket]) -> Result<Part> {
        let narrow = self.narrow(file, whole)?;
        let id = identity()?;
        let tickets = whole.iter().map(|ticket| {
            let terms = narrow.terms(ticket.terms());
            ticket.narrow(id, &terms).map_err(refused)
        });
        let tickets: Vec<Ticket> = tickets.collect::<Result<_>>()?;
        let tickets: Vec<&Ticket> = tickets.iter().collect();
        worth_something(&tickets, whole)?;
        let all = number(file, "space_bytes").unwrap_or(0);
        let space = self.space.map_or(narrow.space.of(all), |space| space.0);
        Ok(Part {
            id,
            path: self.path(file, 1),
            share: narrow.share,
            value: document(file, id, &tickets, narrow.share, space),
        })
    }

    fn narrow(&self, file: &TicketFile, whole: &[Ticket]) -> Result<Narrow> {
        let share = match self.share {
            Some(Percent(part)) => Fraction {
                part,
                whole: WHOLE_PPM,
            },
            None => self.rates(file)?,
        };
        if share.is_more(Fraction::ALL) {
            let why = "a part has at most 100 % of its ticket";
            return Err(invalid(why).hint("--share 100 or less"));
        }
        let space = match self.space {
            Some(space) => space_of(file, whole, space)?,
            None => share,
        };
        let now = Zoned::now();
        let from = self.from.as_ref().map(|from| from.start(&now));
        let until = self.until.as_ref().map(|until| until.end(&now));
        Ok(Narrow {
            share,
            space,
            start_secs: from.transpose().map_err(invalid)?,
            end_secs: until.transpose().map_err(invalid)?,
        })
    }

    /// The share with which a part has the rates that are asked for.
    fn rates(&self, file: &TicketFile) -> Result<Fraction> {
        let asked = [
            (self.read, "read_bytes_per_second", "reading"),
            (self.write, "write_bytes_per_second", "writing"),
        ];
        let mut share: Option<Fraction> = None;
        for (rate, key, what) in asked {
            let Some(rate) = rate else { continue };
            let whole = number(file, key).ok_or_else(|| {
                let why = format!("{} does not say its rate of {what}", file.shown);
                invalid(why).hint("--share PERCENT, of whatever it is")
            })?;
            if rate.0 > whole {
                let why = match whole {
                    0 => format!("no rate of {what} was reserved"),
                    whole => format!(
                        "{what} {rate} would be more than the {} of the ticket",
                        Rate(whole)
                    ),
                };
                return Err(invalid(why).hint(WIDER));
            }
            let one = Fraction {
                part: rate.0,
                whole,
            };
            if whole > 0 && share.is_none_or(|share| one.is_more(share)) {
                share = Some(one);
            }
        }
        Ok(share.unwrap_or(Fraction::ALL))
    }

    fn path(&self, file: &TicketFile, number: usize) -> PathBuf {
        let stem = self.ticket.file_stem().filter(|stem| *stem != "-");
        let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
        let named = file.value["name"].as_str();
        let named = named.filter(|name| !name.starts_with('.') && !name.contains('/'));
        let name = self.name.clone().or(stem);
        let name = name.unwrap_or_else(|| named.unwrap_or("ticket").to_owned());
        self.out.join(format!("{name}-{number}.json"))
    }

    fn show(&self, parts: &[Part]) -> Result<()> {
        if self.json {
            let parts: Vec<Value> = parts.iter().map(Part::json).collect();
            return output::json(&json!({ "parts": parts, "dry_run": self.dry_run }));
        }
        let rows: Vec<[String; 5]> = parts.iter().map(Part::row).collect();
        let head = ["FILE", "SHARE", "WHAT", "FROM", "UNTIL"];
        output::write(&output::table(head, &rows))?;
        match self.dry_run {
            true => output::line("nothing was written"),
            false => Ok(()),
        }
    }
}

/// What to do about a part that is wider than its ticket.
const WIDER: &str = "a part has at most what its ticket has; ask for less, or reserve more";

impl Narrow {
    fn terms(&self, whole: &Terms) -> Terms {
        let slices = whole.slices.iter().map(|slice| Slice {
            share_ppm: u32::try_from(self.share.of(u64::from(slice.share_ppm)))
                .unwrap_or(slice.share_ppm),
            au_budget: self.space.of_at_least(slice.au_budget),
            ..*slice
        });
        Terms {
            start_secs: self.start_secs.unwrap_or(whole.start_secs),
            end_secs: self.end_secs.unwrap_or(whole.end_secs),
            slices: slices.collect(),
            ..whole.clone()
        }
    }
}

impl Part {
    fn json(&self) -> Value {
        json!({
            "file": self.path.display().to_string(),
            "part": self.id.to_string(),
            "share_percent": self.share.percent(),
            "read_bytes_per_second": self.value["read_bytes_per_second"],
            "write_bytes_per_second": self.value["write_bytes_per_second"],
            "space_bytes": self.value["space_bytes"],
            "start": self.value["start"],
            "end": self.value["end"],
        })
    }

    fn row(&self) -> [String; 5] {
        let amount = |key: &str| self.value[key].as_u64().filter(|amount| *amount > 0);
        let rate = |key: &str, what: &str| amount(key).map(|rate| format!("{what} {}", Rate(rate)));
        let space = amount("space_bytes").map(|bytes| format!("{} of space", ByteSize(bytes)));
        let what = [
            rate("read_bytes_per_second", "reading"),
            rate("write_bytes_per_second", "writing"),
            space,
        ];
        let what: Vec<String> = what.into_iter().flatten().collect();
        let time = |key: &str| self.value[key].as_str().unwrap_or_default().to_owned();
        [
            self.path.display().to_string(),
            format!("{:.1} %", self.share.percent()),
            what.join(", "),
            time("start"),
            time("end"),
        ]
    }
}

fn number(file: &TicketFile, key: &str) -> Option<u64> {
    file.value[key].as_u64()
}

/// The share with which a part has so much space.
fn space_of(file: &TicketFile, whole: &[Ticket], space: ByteSize) -> Result<Fraction> {
    let slices = whole.iter().flat_map(|ticket| &ticket.terms().slices);
    let units: u64 = slices.map(|slice| slice.au_budget).sum();
    let reserved = number(file, "space_bytes");
    let reserved = reserved.ok_or_else(|| {
        let why = format!("{} does not say how much space it has", file.shown);
        invalid(why).hint("--share PERCENT, of whatever it is")
    })?;
    if space.0 > reserved || units == 0 {
        let why = match reserved.min(units) {
            0 => "no space was reserved".to_owned(),
            _ => format!(
                "{space} of space would be more than the {} of the ticket",
                ByteSize(reserved)
            ),
        };
        return Err(invalid(why).hint(WIDER));
    }
    Ok(Fraction {
        part: space.0,
        whole: reserved,
    })
}

fn identity() -> Result<TicketId> {
    let mut id = [0; 16];
    getrandom(&mut id)?;
    Ok(TicketId(id))
}

fn refused(error: SplitError) -> Failure {
    let failure = invalid(error.to_string());
    match error {
        SplitError::Widened(Coordinate::Window) => failure.hint(
            "a part begins and ends within the window of its ticket; `azekura reserve extend` \
             gives a longer one",
        ),
        SplitError::Widened(_) => failure.hint(WIDER),
        SplitError::TooManyLinks => failure.hint("split the ticket that it was split from instead"),
        SplitError::BadTerms => failure.hint("a part ends after its start; see --from and --until"),
    }
}

/// Refuses parts that are nothing of a device of which the whole has something.
fn worth_something(parts: &[&Ticket], whole: &[Ticket]) -> Result<()> {
    let slices = |ticket: &Ticket| ticket.terms().slices.clone();
    let pairs = parts.iter().zip(whole);
    let mut pairs = pairs.flat_map(|(part, whole)| slices(part).into_iter().zip(slices(whole)));
    match pairs.any(|(part, whole)| part.share_ppm == 0 && whole.share_ppm > 0) {
        true => Err(
            invalid("a part would be less than a millionth of a device's time")
                .hint("fewer parts, or a larger one"),
        ),
        false => Ok(()),
    }
}

/// The file of a part: that of the whole, with what differs.
fn document(
    file: &TicketFile,
    id: TicketId,
    tickets: &[&Ticket],
    share: Fraction,
    space_bytes: u64,
) -> Value {
    let mut value = file.value.clone();
    for key in ["read_bytes_per_second", "write_bytes_per_second"] {
        if let Some(rate) = number(file, key) {
            value[key] = json!(share.of(rate));
        }
    }
    if number(file, "space_bytes").is_some() {
        value["space_bytes"] = json!(space_bytes);
    }
    if let Some(ticket) = tickets.first() {
        value["start"] = json!(moment(ticket.terms().start_secs));
        value["end"] = json!(moment(ticket.terms().end_secs));
    }
    // The tickets are those of one window.
    value["count"] = json!(1);
    value["every_seconds"] = json!(0);
    value["part"] = json!(id.to_string());
    let slices = tickets.iter().flat_map(|ticket| {
        let server = ticket.head().server.to_string();
        let slices = ticket.terms().slices.iter();
        slices.map(move |slice| {
            json!({
                "server": server,
                "store": slice.device.to_string(),
                "share_ppm": slice.share_ppm,
                "stripe_unit_bytes": slice.stripe_unit_bytes,
                "allocation_units": slice.au_budget,
            })
        })
    });
    value["slices"] = slices.collect();
    let tickets = tickets.iter().map(|ticket| {
        json!({
            "server": ticket.head().server.to_string(),
            "ticket": hex(&ticket.to_bytes()),
        })
    });
    value["tickets"] = tickets.collect();
    value
}

/// Refuses a name that something has.
fn free(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::local(path.display(), error)),
        Ok(_) => Err(taken(path)),
    }
}

fn taken(path: &Path) -> Failure {
    let why = "it is there already, and nothing is overwritten";
    Failure::local(path.display(), why).hint("--name NAME or --out DIR; or remove it")
}

/// Writes all files or none, for their owner alone.
fn write_all(parts: &[Part]) -> Result<()> {
    for (at, part) in parts.iter().enumerate() {
        if let Err(failure) = write(part) {
            for written in &parts[..at] {
                let _ = std::fs::remove_file(&written.path);
            }
            return Err(failure);
        }
    }
    Ok(())
}

fn write(part: &Part) -> Result<()> {
    let path = &part.path;
    // A new file, so no link is followed.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => taken(path),
        io::ErrorKind::NotFound => Failure::local(path.display(), "there is no such directory")
            .hint("make it with mkdir, or name another one with --out"),
        _ => Failure::local(path.display(), error),
    })?;
    let written = writeln!(file, "{}", part.value).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written.context(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_and_compared() {
        let half = Fraction { part: 1, whole: 2 };
        assert_eq!((half.of(5), half.of_at_least(5)), (2, 3));
        assert_eq!(half.of(u64::MAX), u64::MAX / 2);
        assert!(Fraction::ALL.is_more(half) && !half.is_more(half));
        assert_eq!(half.percent(), 50.0);
    }

    #[test]
    fn a_share_is_a_number_of_percent() {
        assert_eq!("12.5".parse(), Ok(Percent(125_000)));
        assert_eq!("25%".parse(), Ok(Percent(250_000)));
        for wrong in ["", "0", "-5", "half", "inf", "NaN"] {
            assert!(wrong.parse::<Percent>().is_err(), "{wrong}");
        }
    }
}
