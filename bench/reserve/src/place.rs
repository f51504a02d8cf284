//! A store in a file, its server in this process, and clients over loopback.

use crate::Cli;
use anyhow::{Context, Result};
use base::ticket::{Class, Head, ObjectScope, Operations, Slice, Terms};
use base::{ClusterId, ObjectId, ServerId, StoreId, TicketId, VolumeId};
use bytes::Bytes;
use client::object::{StorageServer, StoreClient};
use client::transport::{Endpoint, TransportOptions};
use figures::spread;
use server::{DeviceInfo, NewStore, RunningServer, Server, ServerConfig};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use wire::identity::Credential;

const VOLUME: VolumeId = VolumeId([7; 16]);
/// Length of the objects that are read and written.
pub(crate) const OBJECT_BYTES: u64 = 16 << 20;
/// Time in which every answer comes, also behind a queue of everybody's.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);

/// A server's data, removed when dropped.
pub(crate) struct Place {
    directory: TempDir,
    credential: Arc<Credential>,
}

/// A server at work.
pub(crate) struct Site {
    pub(crate) server: RunningServer,
    pub(crate) device: DeviceInfo,
    credential: Arc<Credential>,
}

impl Place {
    pub(crate) fn new(cli: &Cli) -> Result<Self> {
        let builder = &mut tempfile::Builder::new();
        let directory = builder
            .prefix("azekura-bench-")
            .tempdir_in(&cli.directory)?;
        let store = NewStore {
            path: "stores/0".into(),
            size_bytes: Some(cli.size),
        };
        let data = directory.path().join("srv");
        let made = Server::init_with_store(&data, Some(&store))?;
        Ok(Self {
            directory,
            credential: Arc::new(made.admin),
        })
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("srv")
    }

    /// The store's file.
    pub(crate) fn file(&self) -> PathBuf {
        self.data().join("stores/0")
    }

    pub(crate) async fn start(&self, first_come_first_served: bool) -> Result<Site> {
        let any = "127.0.0.1:0".parse()?;
        let config = ServerConfig {
            plain: true,
            first_come_first_served,
            ..ServerConfig::new(self.data(), any)
        };
        let server = Server::start(config).await?;
        let device = server.storage().devices().into_iter().next();
        Ok(Site {
            server,
            device: device.context("the server has no store")?,
            credential: self.credential.clone(),
        })
    }
}

/// The object with this number.
pub(crate) fn object(number: u64) -> ObjectId {
    ObjectScope::new(VOLUME, b"").object(number.to_le_bytes())
}

impl Site {
    pub(crate) fn store(&self) -> StoreId {
        self.device.store
    }

    /// A client of its own, with a share of the device if that is more than none; `holder` shares
    /// the leftover with others.
    pub(crate) async fn client(&self, share_ppm: Option<u32>, holder: u64) -> Result<StoreClient> {
        let endpoint = Endpoint {
            server: None,
            name: "bench".to_owned(),
            addresses: vec![self.server.address()],
            credential: self.credential.clone(),
            plain: true,
            host: format!("bench-{holder}"),
        };
        let options = TransportOptions {
            request_time_max: REQUEST_TIME_MAX,
            connections: 1,
            ..TransportOptions::default()
        };
        let server = StorageServer::connect(endpoint, options).await?;
        let ticket = match share_ppm {
            Some(share_ppm) => Some(server.show(&self.ticket(share_ppm, holder)).await?),
            None => None,
        };
        Ok(server.store(self.store(), ticket))
    }

    fn ticket(&self, share_ppm: u32, holder: u64) -> Vec<u8> {
        let now = self.server.storage().now().as_nanos() / 1_000_000_000;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(holder + 1).to_le_bytes());
        let head = Head {
            class: Class::Standard,
            cluster: ClusterId([0; 16]),
            server: ServerId([0; 16]),
            id: TicketId(id),
            epoch: 0,
            holder,
            volume: VOLUME,
            key_id: 0,
        };
        let terms = Terms {
            operations: Operations::READ_WRITE,
            burst_millis: 50,
            start_secs: now - 1,
            end_secs: now + 3600,
            lifetime_end_secs: now + 3600,
            slices: vec![Slice {
                device: self.store(),
                share_ppm,
                stripe_unit_bytes: 0,
                au_budget: 1 << 40,
            }],
            path: Vec::new(),
        };
        self.server.storage().issue(&head, &terms).to_bytes()
    }

    /// Makes objects full of bytes.
    pub(crate) async fn fill(&self, count: u64) -> Result<()> {
        let client = self.client(None, 0).await?;
        for number in 0..count {
            if client.info(object(number)).await.is_ok() {
                continue;
            }
            client.create(object(number), None).await?;
            for at in (0..OBJECT_BYTES).step_by(1 << 20) {
                let word = spread(number << 32 | at).to_le_bytes();
                let data: Bytes = word.iter().copied().cycle().take(1 << 20).collect();
                client.write(object(number), at, data).await?;
            }
        }
        client.commit().await?;
        Ok(())
    }
}
