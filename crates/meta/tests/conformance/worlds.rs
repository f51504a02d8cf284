//! Where engines live: a directory, or a cluster of three members on loopback.

use meta::{Embedded, Engine, Etcd, EtcdOptions};
use std::fs::{self, DirEntry};
use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Each thread of a member stops when it runs the next time.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

pub(crate) const MEMBERS: usize = 3;

/// A place whose engine can be opened again and again.
pub(crate) trait World: Sync {
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Engine>> + Send + '_>>;
    /// How many clients a test should have, and how many things each does: a cluster on one
    /// machine is slow.
    fn load(&self) -> (usize, usize);
}

/// An embedded engine in a directory of its own.
pub(crate) struct File {
    directory: TempDir,
}

impl File {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("meta")
    }
}

impl World for File {
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Engine>> + Send + '_>> {
        Box::pin(async {
            let engine: Arc<dyn Engine> = Embedded::open(self.path()).await.unwrap();
            engine
        })
    }

    fn load(&self) -> (usize, usize) {
        (16, 60)
    }
}

/// A prefix in the cluster that all tests of this process share.
pub(crate) struct Prefix {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) name: String,
}

static PREFIXES: AtomicU32 = AtomicU32::new(0);
/// Begun by the first test that needs it, ended after the last one.
static CLUSTER: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());

impl Prefix {
    pub(crate) fn of_cluster() -> Option<Self> {
        let mut shared = CLUSTER.lock().unwrap();
        let cluster = match shared.upgrade() {
            Some(cluster) => cluster,
            None => Arc::new(Cluster::begin(MEMBERS, &|_| Vec::new())?),
        };
        *shared = Arc::downgrade(&cluster);
        Some(Self::of(cluster))
    }

    pub(crate) fn of(cluster: Arc<Cluster>) -> Self {
        let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
        let name = format!("test/{number}");
        Self { cluster, name }
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions::new(self.cluster.endpoints(), &self.name)
    }
}

impl World for Prefix {
    fn open(&self) -> Pin<Box<dyn Future<Output = Arc<dyn Engine>> + Send + '_>> {
        Box::pin(async {
            let engine: Arc<dyn Engine> = Etcd::open(self.options()).await.unwrap();
            engine
        })
    }

    fn load(&self) -> (usize, usize) {
        (8, 20)
    }
}

/// Members of an etcd cluster, killed when this is dropped and when the process ends in any way.
pub(crate) struct Cluster {
    ports: Vec<(u16, u16)>,
    commands: mpsc::Sender<Order>,
    /// The thread that began them: they are killed when it ends.
    parent: Option<JoinHandle<()>>,
    _directory: TempDir,
}

enum Order {
    Kill(usize, mpsc::Sender<()>),
    Start(usize, mpsc::Sender<()>),
    Signal(usize, &'static str, mpsc::Sender<()>),
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(program).is_file())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Cluster {
    /// Begins so many members, each with arguments of its own; none if there is no etcd here.
    pub(crate) fn begin(count: usize, arguments: &dyn Fn(usize) -> Vec<String>) -> Option<Self> {
        if !is_installed("etcd") || !is_installed("setpriv") {
            println!("skipped: etcd is not installed (Debian: etcd-server)");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let ports: Vec<_> = (0..count).map(|_| (free_port(), free_port())).collect();
        let peers = ports.iter().enumerate();
        let peers = peers.map(|(index, (_, peer))| format!("m{index}=http://127.0.0.1:{peer}"));
        let peers = peers.collect::<Vec<_>>().join(",");
        let lines = ports.iter().enumerate().map(|(index, (client, peer))| {
            let own = arguments(index);
            let is_encrypted = own
                .iter()
                .any(|argument| argument.starts_with("--cert-file"));
            let scheme = if is_encrypted { "https" } else { "http" };
            let data = directory.path().join(format!("m{index}"));
            let mut line = vec![
                format!("--name=m{index}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={scheme}://127.0.0.1:{client}"),
                format!("--advertise-client-urls={scheme}://127.0.0.1:{client}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster={peers}"),
                "--logger=zap".to_owned(),
                format!(
                    "--log-outputs={}",
                    directory.path().join(format!("log{index}")).display()
                ),
            ];
            line.extend(own);
            line
        });
        let lines = lines.collect();
        let (commands, orders) = mpsc::channel();
        let parent = std::thread::spawn(move || run_members(lines, &orders));
        let cluster = Self {
            ports,
            commands,
            parent: Some(parent),
            _directory: directory,
        };
        (0..count).for_each(|index| cluster.start(index));
        Some(cluster)
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        let ports = self.ports.iter();
        ports
            .map(|(client, _)| format!("127.0.0.1:{client}"))
            .collect()
    }

    /// kill -9.
    pub(crate) fn kill(&self, index: usize) {
        self.order(|done| Order::Kill(index, done));
    }

    pub(crate) fn start(&self, index: usize) {
        self.order(|done| Order::Start(index, done));
    }

    /// A member that is stopped does nothing any more when this returns.
    pub(crate) fn signal(&self, index: usize, signal: &'static str) {
        self.order(|done| Order::Signal(index, signal, done));
    }

    fn order(&self, order: impl FnOnce(mpsc::Sender<()>) -> Order) {
        let (done, is_done) = mpsc::channel();
        self.commands.send(order(done)).unwrap();
        is_done.recv().unwrap();
    }
}

/// The signal alone leaves threads running for a while.
fn until_stopped(pid: u32) {
    let is_stopped = |task: std::io::Result<DirEntry>| {
        // A thread may have ended since.
        fs::read_to_string(task.unwrap().path().join("stat"))
            .is_ok_and(|stat| stat.rsplit(") ").next().unwrap().starts_with('T'))
    };
    let deadline = Instant::now() + STOP_TIME_MAX;
    let tasks = format!("/proc/{pid}/task");
    while !fs::read_dir(&tasks).unwrap().all(is_stopped) {
        assert!(Instant::now() < deadline, "member {pid} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn run_members(lines: Vec<Vec<String>>, orders: &mpsc::Receiver<Order>) {
    let mut members: Vec<Option<Child>> = lines.iter().map(|_| None).collect();
    let kill = |member: &mut Option<Child>| {
        if let Some(mut child) = member.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    };
    while let Ok(order) = orders.recv() {
        let done = match order {
            Order::Kill(index, done) => {
                kill(&mut members[index]);
                done
            }
            Order::Start(index, done) => {
                let child = Command::new("setpriv")
                    .args(["--pdeathsig", "KILL", "etcd"])
                    .args(&lines[index])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn();
                members[index] = Some(child.unwrap());
                done
            }
            Order::Signal(index, signal, done) => {
                let member = members[index].as_ref().unwrap();
                let sent = Command::new("kill")
                    .args([signal, &member.id().to_string()])
                    .status();
                assert!(sent.unwrap().success());
                if signal == "-STOP" {
                    until_stopped(member.id());
                }
                done
            }
        };
        done.send(()).unwrap();
    }
    members.iter_mut().for_each(kill);
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.commands = mpsc::channel().0;
        if let Some(parent) = self.parent.take() {
            let ended = parent.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}
