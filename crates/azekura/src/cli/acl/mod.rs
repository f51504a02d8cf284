//! `azekura acl enable|disable|status|get|set|explain|preview|plan|rollback|calibrate|convert|
//! compact`.
//!
//! The volume's flag is the server's to change, for administrators. Lists are read and set as the
//! attribute `system.nfs4_acl` of a file, by whoever runs the command, and judged at the server as
//! on any mount. Names are those of this machine; on the way there are numbers alone.

mod edit;
mod explain;
mod get;
mod plan;
mod preview;
mod rollback;
mod set;
mod switch;
mod tree;
mod views;
mod who;

use crate::address::FileAddress;
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, WayArgs, enter, principal, runtime, unless_interrupted};
use crate::errors::{Code, Failure, Result};
use acl::{RichAcl, UnixIds};
use base::{FileKind, FsError, Principal};
use client::cache::NodeId;
use client::transport::TransportOptions;
use client::volume::{View, Volume};
use std::sync::Arc;

/// The attribute.
const NFS4: &[u8] = b"system.nfs4_acl";

/// Rich ACLs (NFSv4, Windows) of a volume
#[derive(Debug, clap::Subcommand)]
pub(super) enum Acl {
    Enable(switch::Enable),
    Disable(switch::Disable),
    Status(switch::Status),
    Get(get::Get),
    Set(set::Set),
    Explain(explain::Explain),
    Preview(preview::Preview),
    Plan(plan::Plan),
    Rollback(rollback::Rollback),
    Calibrate(views::Calibrate),
    Convert(views::Convert),
    Compact(views::Compact),
}

impl Acl {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        match self {
            Self::Enable(command) => command.run(config),
            Self::Disable(command) => command.run(config),
            Self::Status(command) => command.run(config),
            Self::Get(command) => command.run(config),
            Self::Set(command) => command.run(config),
            Self::Explain(command) => command.run(config),
            Self::Preview(command) => command.run(config),
            Self::Plan(command) => command.run(config),
            Self::Rollback(command) => command.run(config),
            Self::Calibrate(command) => command.run(config),
            Self::Convert(command) => command.run(config),
            Self::Compact(command) => command.run(config),
        }
    }
}

/// A file of a volume, for as long as a command works.
struct Place {
    volume: Arc<Volume>,
    who: Principal,
    view: View,
    /// The directories on the way to it, from the volume's root on, and what they are called; none
    /// for the root.
    above: Vec<(NodeId, String)>,
}

/// Runs `work` with a file of a volume.
fn at<T, F>(
    config: &Config,
    address: &FileAddress,
    way: &WayArgs,
    work: impl FnOnce(Place) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    runtime()?.block_on(async {
        let options = TransportOptions {
            connections: 1,
            ..TransportOptions::default()
        };
        let volume = enter(config, &address.volume, way, options).await?;
        let outcome = unless_interrupted(async {
            let place = find(&volume, address).await?;
            work(place).await
        });
        let outcome = outcome.await;
        volume.transport().close(GOODBYE_TIME_MAX).await;
        outcome
    })
}

async fn find(volume: &Arc<Volume>, address: &FileAddress) -> Result<Place> {
    let who = principal(volume.transport())?;
    let mut view = volume.attributes(&who, NodeId::ROOT).await?;
    let (mut above, mut path) = (Vec::new(), String::new());
    for part in &address.path {
        let found = volume.lookup(&who, view.node, part).await?;
        let missing = || Failure::new(Code::FileNotFound, format!("there is no {address}"));
        let name = if path.is_empty() { "/" } else { &*path };
        above.push((view.node, name.to_owned()));
        path.push_str(&format!("/{part}"));
        view = found.ok_or_else(missing)?;
    }
    if view.attributes.kind == FileKind::Symlink {
        let message = format!("{address} is a symbolic link, and those have no ACL");
        return Err(Failure::new(Code::AclOff, message).hint("name what it points to"));
    }
    Ok(Place {
        volume: Arc::clone(volume),
        who,
        view,
        above,
    })
}

/// The rich ACL that a file shows.
async fn read(volume: &Volume, who: &Principal, node: NodeId) -> Result<RichAcl> {
    let value = volume.xattr(who, node, NFS4).await.map_err(failed)?;
    RichAcl::from_nfs4(&value, &UnixIds).map_err(|error| {
        let message = format!("the server sends what is no ACL: {error}");
        Failure::new(Code::Protocol, message)
    })
}

/// Whether a rich ACL is the truth of a file: only then it is listed.
async fn is_truth(volume: &Volume, who: &Principal, node: NodeId) -> Result<bool> {
    let names = volume.xattr_names(who, node).await?;
    Ok(names.split(|byte| *byte == 0).any(|name| name == NFS4))
}

/// What it means that an ACL cannot be read or set.
fn failed(error: FsError) -> Failure {
    match error {
        FsError::NotSupported => Failure::new(Code::AclOff, "rich ACLs are off for this volume"),
        FsError::Invalid | FsError::TooBig => Failure::new(
            Code::AclText,
            format!("the server does not take this list: {error}"),
        ),
        FsError::NoSpace => Failure::from(error).hint(
            "ext4 has 4 KiB for all attributes of a file; if the list is not that long, its file \
             system is full",
        ),
        other => other.into(),
    }
}
