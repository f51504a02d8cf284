//! Three members of etcd, as Debian has it, for one test.

use crate::common::Scene;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Members of a cluster.
pub(crate) const MEMBERS: usize = 3;
/// Until a member listens.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Starts the member for each line; says its process number, and that it has ended.
const LAUNCHER: &str = r#"
while read -r line; do
    setpriv --pdeathsig KILL etcd $line >"$NAME.log" 2>&1 &
    echo $!
    wait $!
    echo ended
done
"#;

struct Member {
    launcher: Child,
    launched: BufReader<ChildStdout>,
    arguments: String,
    port: u16,
    pid: Option<Pid>,
}

/// All of them. Begun before anything is mounted.
pub(crate) struct Cluster {
    members: Vec<Member>,
}

impl Cluster {
    /// None, with the reason, where there is no etcd.
    pub(crate) fn begin(scene: &Scene) -> Option<Self> {
        let tried = Command::new("etcd").arg("--version").output();
        if !tried.is_ok_and(|run| run.status.success()) {
            println!("skipped: there is no etcd (Debian's etcd-server)");
            return None;
        }
        let free = |_| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            (listener.local_addr().unwrap().port(), listener)
        };
        // All at once, so that they differ.
        let taken: Vec<_> = (0..2 * MEMBERS).map(free).collect();
        let ports: Vec<u16> = taken.iter().map(|(port, _)| *port).collect();
        drop(taken);
        let peer = |index: usize| format!("m{index}=http://127.0.0.1:{}", ports[MEMBERS + index]);
        let peers = (0..MEMBERS).map(peer).collect::<Vec<_>>().join(",");
        let member = |index: usize| {
            let (client, peer) = (ports[index], ports[MEMBERS + index]);
            let arguments = format!(
                "--name=m{index} --data-dir=etcd{index} --initial-cluster-state=new \
                 --listen-client-urls=http://127.0.0.1:{client} \
                 --advertise-client-urls=http://127.0.0.1:{client} \
                 --listen-peer-urls=http://127.0.0.1:{peer} \
                 --initial-advertise-peer-urls=http://127.0.0.1:{peer} --initial-cluster={peers}\n"
            );
            let mut launcher = Command::new("sh")
                .args(["-c", LAUNCHER])
                .env("NAME", format!("etcd{index}"))
                .current_dir(scene.path("."))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            Member {
                launched: BufReader::new(launcher.stdout.take().unwrap()),
                launcher,
                arguments,
                port: client,
                pid: None,
            }
        };
        let members = (0..MEMBERS).map(member).collect();
        let mut this = Self { members };
        (0..MEMBERS).for_each(|index| this.start(index));
        Some(this)
    }

    /// As `--meta` takes it.
    pub(crate) fn address(&self) -> String {
        let members = self.members.iter();
        let members: Vec<_> = members
            .map(|member| format!("127.0.0.1:{}", member.port))
            .collect();
        format!("etcd://{}/test", members.join(","))
    }

    pub(crate) fn start(&mut self, index: usize) {
        let member = &mut self.members[index];
        let mut launcher = member.launcher.stdin.as_ref().unwrap();
        launcher.write_all(member.arguments.as_bytes()).unwrap();
        let mut pid = String::new();
        member.launched.read_line(&mut pid).unwrap();
        member.pid = Pid::from_raw(pid.trim().parse().unwrap());
    }

    /// kill -9.
    pub(crate) fn kill(&mut self, index: usize) {
        let member = &mut self.members[index];
        kill_process(member.pid.take().expect("it runs"), Signal::KILL).unwrap();
        let mut ended = String::new();
        member.launched.read_line(&mut ended).unwrap();
        assert_eq!(ended, "ended\n");
    }

    /// Waits until all members listen.
    pub(crate) fn until_there(&self) {
        let deadline = Instant::now() + TIME_MAX;
        for member in &self.members {
            while std::net::TcpStream::connect(("127.0.0.1", member.port)).is_err() {
                assert!(Instant::now() < deadline, "no etcd");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(pid) = member.pid {
                let _ = kill_process(pid, Signal::KILL);
            }
            drop(member.launcher.stdin.take());
            let _ = member.launcher.wait();
        }
    }
}
