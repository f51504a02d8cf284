//! Samples of what is said about servers.

use super::samples::{Sample, encoded};
use base::ServerId;
use std::collections::BTreeSet;
use wire::message::*;

const SERVER: ServerId = ServerId([0x71; 16]);

fn requests() -> Vec<Sample> {
    let samples = vec![
        ClusterRequest::Servers,
        ClusterRequest::Register(Registration {
            addresses: vec!["disks.example:7700".into()],
            epoch: 300,
            key_id: 2,
            key: SharedKey([0x72; 32]),
        }),
        ClusterRequest::Stores { server: SERVER },
        ClusterRequest::Managers,
    ];
    names!(samples, ClusterRequest: Servers Register Stores Managers)
}

fn replies() -> Vec<Sample> {
    let samples = vec![
        ClusterReply::Servers(vec![ServerSummary {
            server: SERVER,
            label: "disks".into(),
            addresses: vec!["disks.example:7700".into()],
            is_here: false,
            seconds_away: Some(300),
            stores: 2,
            bytes: 1 << 40,
            bytes_free: 1 << 39,
        }]),
        ClusterReply::Registered { credentials: 300 },
        ClusterReply::Stores(vec![super::object_samples::store()]),
        ClusterReply::Failed("no".into()),
        ClusterReply::Managers(vec![ManagerSummary {
            server: SERVER,
            label: "one".into(),
            addresses: vec!["one.example:7700".into()],
            leads: true,
            is_there: true,
        }]),
    ];
    names!(samples, ClusterReply: Servers Registered Stores Failed Managers)
}

/// All of them, by the name of their golden file.
pub(crate) fn all() -> Vec<(&'static str, Vec<Sample>)> {
    vec![
        ("cluster_request", requests()),
        ("cluster_reply", replies()),
    ]
}
