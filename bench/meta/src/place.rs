//! Where an engine lives: a file, or three members of etcd. And the disk below.

use anyhow::{Context, bail};
use meta::{Embedded, Engine, Etcd, EtcdOptions};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MEMBERS: usize = 3;
/// How long the members have to find each other.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(60);

/// A directory with an engine, removed at the end; members are killed first.
pub(crate) struct Place {
    members: Members,
    endpoints: Vec<String>,
    directory: TempDir,
}

struct Members(Vec<Child>);

impl Drop for Members {
    fn drop(&mut self) {
        for member in &mut self.0 {
            // One that has ended by itself is as good as killed.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Place {
    pub(crate) fn embedded(directory: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            members: Members(Vec::new()),
            endpoints: Vec::new(),
            directory: TempDir::new_in(directory)?,
        })
    }

    pub(crate) fn etcd(directory: &Path) -> anyhow::Result<Self> {
        let mut place = Self::embedded(directory)?;
        let ports: Vec<(u16, u16)> = (0..MEMBERS)
            .map(|_| Ok((free_port()?, free_port()?)))
            .collect::<anyhow::Result<_>>()?;
        let peers = ports.iter().enumerate();
        let peers = peers.map(|(at, (_, peer))| format!("m{at}=http://127.0.0.1:{peer}"));
        let peers = peers.collect::<Vec<_>>().join(",");
        for (at, (client, peer)) in ports.iter().enumerate() {
            let path = |name: &str| place.directory.path().join(format!("{name}{at}"));
            let member = Command::new("etcd")
                .arg(format!("--name=m{at}"))
                .arg(format!("--data-dir={}", path("m").display()))
                .arg("--logger=zap")
                .arg(format!("--log-outputs={}", path("log").display()))
                .arg(format!("--listen-client-urls=http://127.0.0.1:{client}"))
                .arg(format!("--advertise-client-urls=http://127.0.0.1:{client}"))
                .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"))
                .arg(format!(
                    "--initial-advertise-peer-urls=http://127.0.0.1:{peer}"
                ))
                .arg(format!("--initial-cluster={peers}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .context("etcd (Debian: etcd-server)")?;
            place.members.0.push(member);
            place.endpoints.push(format!("127.0.0.1:{client}"));
        }
        Ok(place)
    }

    pub(crate) async fn open(&self) -> anyhow::Result<Arc<dyn Engine>> {
        if self.endpoints.is_empty() {
            return Ok(Embedded::open(self.directory.path().join("meta")).await?);
        }
        let end = Instant::now() + BEGIN_TIME_MAX;
        loop {
            match Etcd::open(EtcdOptions::new(self.endpoints.clone(), "bench")).await {
                Ok(engine) => return Ok(engine),
                Err(error) if Instant::now() > end => bail!("the cluster does not begin: {error}"),
                Err(_) => {}
            }
        }
    }

    /// What the disk does: 4 KiB written and made durable, again and again.
    pub(crate) fn flushes_per_second(&self) -> anyhow::Result<f64> {
        let path = self.directory.path().join("flushes");
        let file = File::create(&path)?;
        let begin = Instant::now();
        let mut count: u64 = 0;
        while begin.elapsed() < Duration::from_secs(1) {
            file.write_all_at(&[7; 4096], count % 256 * 4096)?;
            file.sync_data()?;
            count += 1;
        }
        let rate = count as f64 / begin.elapsed().as_secs_f64();
        std::fs::remove_file(path)?;
        Ok(rate)
    }
}
