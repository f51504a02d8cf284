//! `azekura volume create|list|show|delete`.

use crate::address::{Address, VolumeAddress};
use crate::config::Config;
use crate::connect::{WayArgs, admin, runtime, unexpected_reply};
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use serde_json::{Value, json};
use std::path::PathBuf;
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

/// Make a directory of the server a volume
///
/// The directory stays as it is and can be used at the server as before. It must exist, and must
/// not overlap the server's data directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura volume create 127.0.0.1:7700/photos --export ./photos")]
pub(super) struct Create {
    /// HOST:PORT/VOLUME; a name has 1 to 63 of a-z 0-9 - _ . and begins with a letter or digit
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// Directory at the server; a relative one is taken from here, as on the same machine
    #[arg(long, value_name = "DIR")]
    export: PathBuf,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
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
        let path = std::path::absolute(&self.export).context(self.export.display())?;
        // `./photos` may lead through links; at the server only the real path means the same. If it
        // does not exist here, the server may be another machine, and it will judge.
        let path = path.canonicalize().unwrap_or(path);
        let export = path.into_os_string().into_string().map_err(|path| {
            let shown = output::plain(&path.to_string_lossy());
            Failure::new(Code::Invalid, format!("{shown} is not UTF-8"))
                .hint("export a directory above it, or rename it")
        })?;
        let VolumeAddress { server, volume } = &self.volume;
        let request = AdminRequest::VolumeCreate {
            name: volume.clone(),
            kind: VolumeKind::Export {
                path: export.clone(),
                read_only: self.read_only,
            },
            dry_run: self.dry_run,
        };
        let created = ask(config, server, &self.way, request);
        let created = one(
            created.map_err(|failure| refused(server, &export, failure))?,
            server,
        )?;
        if self.json {
            return output::json(&volume_json(&created));
        }
        let VolumeKind::Export { path, .. } = &created.kind;
        let done = if self.dry_run {
            "could be made"
        } else {
            "made"
        };
        output::line(format_args!(
            "volume {} {done}: export of {}",
            self.volume,
            output::plain(path)
        ))
    }
}

/// What the server says of a directory that it does not take: then it names it. Otherwise it is the
/// volume's name that it does not take.
fn refused(server: &Address, export: &str, failure: Failure) -> Failure {
    match failure.code() {
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
    output::write(&volume_table(&volumes))
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

/// Forget a volume; the files of an export stay where they are
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
        output::line(format_args!(
            "volume {} {done}; its files stay",
            self.volume
        ))
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
    let VolumeKind::Export { path, read_only } = &volume.kind;
    json!({
        "id": volume.id.to_string(),
        "name": volume.name,
        "kind": "export",
        "path": path,
        "read_only": read_only,
        "trouble": volume.trouble,
    })
}

/// Volumes for people.
pub(super) fn volume_table(volumes: &[VolumeSummary]) -> String {
    let rows: Vec<[String; 4]> = volumes
        .iter()
        .map(|volume| {
            let VolumeKind::Export { path, read_only } = &volume.kind;
            let state = match (&volume.trouble, read_only) {
                (Some(trouble), _) => trouble.clone(),
                (None, true) => "read-only".to_owned(),
                (None, false) => "ok".to_owned(),
            };
            [
                volume.name.clone(),
                "export".to_owned(),
                path.clone(),
                state,
            ]
        })
        .collect();
    output::table(["VOLUME", "KIND", "PATH", "STATE"], &rows)
}
