//! `azekura volume create|list|show|delete`.

use crate::address::{Address, VolumeAddress};
use crate::config::Config;
use crate::connect::{WayArgs, admin, runtime, unexpected_reply};
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use base::ByteSize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use wire::message::{AdminReply, AdminRequest, VolumeKind, VolumeSummary};

/// Make, list and delete the volumes of a server
#[derive(Debug, clap::Subcommand)]
pub(super) enum Volume {
    Create(Create),
    List(List),
    Show(Show),
    Delete(Delete),
}

impl Volume {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        match self {
            Self::Create(command) => command.run(config),
            Self::List(command) => command.run(config),
            Self::Show(command) => command.run(config),
            Self::Delete(command) => command.run(config),
        }
    }
}

/// Make a volume: striped over the server's stores, or of a directory of the server
///
/// The files of a parallel volume lie in the server's stores. An exported directory stays as it is
/// and can be used at the server as before. It must exist, and must not overlap the server's data
/// directory.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  azekura volume create 127.0.0.1:7700/lab\n  \
                  azekura volume create 127.0.0.1:7700/photos --export ./photos"
)]
pub(super) struct Create {
    /// HOST:PORT/VOLUME; a name has 1 to 63 of a-z 0-9 - _ . and begins with a letter or digit
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// Directory at the server; a relative one is taken from here, as on the same machine
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Refuse every change
    #[arg(long, requires = "export")]
    read_only: bool,
    /// Put files into the server's stores, which is what is done without --export
    #[arg(long, conflicts_with = "export")]
    parallel: bool,
    /// Of a parallel volume: bytes of a file in one store before the next one's turn, a power of
    /// two and a multiple of the stores' allocation unit; the latter without it
    #[arg(long, value_name = "SIZE", conflicts_with = "export")]
    stripe_unit: Option<ByteSize>,
    /// Of a parallel volume: stores that a new file lies in, if there are so many
    #[arg(long, value_name = "N", conflicts_with = "export", default_value_t = 4)]
    stripe_width: u16,
    /// Check whether it could be made, without making it
    #[arg(long)]
    dry_run: bool,
    /// Print the volume as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Create {
    fn run(self, config: &Config) -> Result<()> {
        let kind = match &self.export {
            Some(export) if !self.parallel => VolumeKind::Export {
                path: real_path(export)?,
                read_only: self.read_only,
            },
            _ => VolumeKind::Parallel {
                unit_log2: self.stripe_unit.map(unit_log2).transpose()?,
                width: self.stripe_width,
            },
        };
        let VolumeAddress { server, volume } = &self.volume;
        let request = AdminRequest::VolumeCreate {
            name: volume.clone(),
            kind: kind.clone(),
            dry_run: self.dry_run,
        };
        let created = ask(config, server, &self.way, request);
        let created = one(
            created.map_err(|failure| refused(server, &kind, failure))?,
            server,
        )?;
        if self.json {
            let mut shown = volume_json(&created);
            shown["dry_run"] = self.dry_run.into();
            return output::json(&shown);
        }
        let what = match &created.kind {
            VolumeKind::Export { path, .. } => format!("export of {}", output::plain(path)),
            VolumeKind::Parallel { .. } => "parallel".to_owned(),
        };
        let done = if self.dry_run {
            "could be made"
        } else {
            "made"
        };
        output::line(format_args!("volume {} {done}: {what}", self.volume))
    }
}

/// `./photos` may lead through links; at the server only the real path means the same. If it does
/// not exist here, the server may be another machine, and it will judge.
fn real_path(export: &Path) -> Result<String> {
    let path = std::path::absolute(export).context(export.display())?;
    let path = path.canonicalize().unwrap_or(path);
    path.into_os_string().into_string().map_err(|path| {
        let shown = output::plain(&path.to_string_lossy());
        Failure::new(Code::Invalid, format!("{shown} is not UTF-8"))
            .hint("export a directory above it, or rename it")
    })
}

fn unit_log2(unit: ByteSize) -> Result<u8> {
    match unit.0.is_power_of_two() {
        true => Ok(unit.0.ilog2() as u8),
        false => Err(Failure::new(
            Code::Invalid,
            format!("a stripe unit is a power of two, which {unit} is not"),
        )),
    }
}

/// What the server says of a directory that it does not take: then it names it. Otherwise it is the
/// volume's name that it does not take.
fn refused(server: &Address, kind: &VolumeKind, failure: Failure) -> Failure {
    let export = match kind {
        VolumeKind::Export { path, .. } => path,
        VolumeKind::Parallel { .. } => {
            let said = failure.to_string();
            let failure = failure.during(format_args!("at {server}"));
            return if said.contains("no store") {
                failure.hint(
                    "a server gets a store with --init, or with --store PATH when it is started; \
                     --export DIR makes a volume of a directory",
                )
            } else if said.contains("end by themselves") {
                failure.hint("a store for volumes is formatted without lifetimes")
            } else {
                failure
            };
        }
    };
    let said = failure.to_string();
    let is_taken = said.contains("exports already") || said.contains("is exported already");
    match failure.code() {
        Code::Invalid if is_taken => failure.during(format_args!("at {server}")),
        Code::Invalid if !failure.to_string().contains(export) => {
            failure.during(format_args!("at {server}"))
        }
        Code::Invalid => failure.during(format_args!("at {server}")).hint(
            "--export names a directory of the server's machine; it must exist there, outside of \
             the server's data directory",
        ),
        _ => failure,
    }
}

/// List the volumes of a server
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// HOST:PORT
    #[arg(value_name = "ADDR")]
    server: Address,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl List {
    fn run(self, config: &Config) -> Result<()> {
        list(config, &self.server, &self.way, self.json)
    }
}

/// Lists the volumes of a server; also for `ls`.
pub(super) fn list(config: &Config, server: &Address, way: &WayArgs, json: bool) -> Result<()> {
    let volumes = ask(config, server, way, AdminRequest::VolumeList)?;
    if json {
        let volumes: Vec<Value> = volumes.iter().map(volume_json).collect();
        return output::json(&json!({ "volumes": volumes }));
    }
    output::write(&volume_table(&volumes))?;
    if let Some(remedy) = remedy(server, &volumes) {
        output::note(remedy);
    }
    Ok(())
}

/// Show one volume
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// HOST:PORT/VOLUME
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Show {
    fn run(self, config: &Config) -> Result<()> {
        let VolumeAddress { server, volume } = &self.volume;
        let request = AdminRequest::VolumeShow {
            name: volume.clone(),
        };
        let volume = one(ask(config, server, &self.way, request)?, server)?;
        if self.json {
            return output::json(&volume_json(&volume));
        }
        output::write(&volume_table(&[volume]))
    }
}

/// Delete a volume; the files of an export stay where they are, a parallel one must be empty
#[derive(Debug, clap::Args)]
pub(super) struct Delete {
    /// HOST:PORT/VOLUME
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// Check whether it could be deleted, without doing it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Delete {
    fn run(self, config: &Config) -> Result<()> {
        let VolumeAddress { server, volume } = &self.volume;
        let show = AdminRequest::VolumeShow {
            name: volume.clone(),
        };
        let shown = one(ask(config, server, &self.way, show)?, server)?;
        let stays = match shown.kind {
            VolumeKind::Export { .. } => "; its files stay",
            VolumeKind::Parallel { .. } => "",
        };
        let request = AdminRequest::VolumeDelete {
            name: volume.clone(),
            dry_run: self.dry_run,
        };
        let reply = runtime()?.block_on(admin(config, server, &self.way, request))?;
        if reply != AdminReply::Done {
            return Err(unexpected_reply(server));
        }
        let done = if self.dry_run {
            "could be deleted"
        } else {
            "deleted"
        };
        output::line(format_args!("volume {} {done}{stays}", self.volume))
    }
}

fn ask(
    config: &Config,
    server: &Address,
    way: &WayArgs,
    request: AdminRequest,
) -> Result<Vec<VolumeSummary>> {
    match runtime()?.block_on(admin(config, server, way, request))? {
        AdminReply::Volumes(volumes) => Ok(volumes),
        _ => Err(unexpected_reply(server)),
    }
}

fn one(mut volumes: Vec<VolumeSummary>, server: &Address) -> Result<VolumeSummary> {
    volumes.pop().ok_or_else(|| unexpected_reply(server))
}

/// A volume in `docs/reference/json.md`.
pub(super) fn volume_json(volume: &VolumeSummary) -> Value {
    match &volume.kind {
        VolumeKind::Export { path, read_only } => json!({
            "id": volume.id.to_string(),
            "name": volume.name,
            "kind": "export",
            "path": path,
            "read_only": read_only,
            "trouble": volume.trouble,
        }),
        VolumeKind::Parallel { unit_log2, width } => json!({
            "id": volume.id.to_string(),
            "name": volume.name,
            "kind": "parallel",
            "stripe_unit_bytes": unit_log2.and_then(|unit| 1u64.checked_shl(unit.into())),
            "stripe_width": width,
            "read_only": false,
            "trouble": volume.trouble,
        }),
    }
}

/// Where more is said of what is wrong with volumes of a list, which has only the beginning.
pub(super) fn remedy(server: &Address, volumes: &[VolumeSummary]) -> Option<String> {
    let mut wrong = volumes.iter().filter(|volume| volume.trouble.is_some());
    let first = wrong.next()?;
    Some(match wrong.next() {
        None => format!(
            "azekura volume show {server}/{} says all of it, and what to do",
            output::plain(&first.name)
        ),
        Some(_) => format!("azekura volume show {server}/VOLUME says all of it, and what to do"),
    })
}

/// Volumes for people.
pub(super) fn volume_table(volumes: &[VolumeSummary]) -> String {
    let rows: Vec<[String; 4]> = volumes
        .iter()
        .map(|volume| {
            let (kind, path, read_only) = match &volume.kind {
                VolumeKind::Export { path, read_only } => ("export", path.as_str(), *read_only),
                VolumeKind::Parallel { .. } => ("parallel", "", false),
            };
            let state = match (&volume.trouble, read_only) {
                (Some(trouble), _) => trouble.clone(),
                (None, true) => "read-only".to_owned(),
                (None, false) => "ok".to_owned(),
            };
            [volume.name.clone(), kind.to_owned(), path.to_owned(), state]
        })
        .collect();
    output::table(["VOLUME", "KIND", "PATH", "STATE"], &rows)
}
