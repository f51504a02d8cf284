//! What one operation of the export costs, in nanoseconds, beside the bare system call.
//!
//! ```text
//! cargo run --release -p export --example cost -- /dev/shm
//! ```
//!
//! Takes root and a directory to work in; what it makes there it removes. Each figure is processor
//! time of the calling thread (the disk's is not the export's), the best of five rounds, for the
//! same caller throughout; "two callers" alternates between two users, so that each operation
//! begins with a change of identity.

#![expect(clippy::print_stdout, reason = "it prints a table")]

use base::{Handle, Name, Principal, VolumeId};
use bytes::BytesMut;
use export::{
    Access, Create, Export, ExportError, ExportOptions, HandleKey, Node, OpenOptions, Watch, Worker,
};
use std::path::{Path, PathBuf};

const FILES: usize = 4096;
const ROUNDS: usize = 5;

type Failure = Box<dyn std::error::Error>;

struct Bench {
    export: Export,
    worker: Worker,
    user: Principal,
    names: Vec<Name>,
}

fn main() -> Result<(), Failure> {
    let place = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let top = place.join(format!("export-cost-{}", std::process::id()));
    std::fs::create_dir(&top)?;
    std::os::unix::fs::chown(&top, Some(2001), Some(2001))?;
    let result = open(&top)
        .map_err(Failure::from)
        .and_then(|bench| bench.run(&top));
    std::fs::remove_dir_all(&top)?;
    result
}

fn open(top: &Path) -> Result<Bench, ExportError> {
    let options = ExportOptions::new(VolumeId([1; 16]), HandleKey::new([1; 32]));
    let names = (0..FILES).map(|number| Name::new(format!("file-{number}")).expect("legal"));
    Ok(Bench {
        export: Export::open(top, &options)?,
        worker: Worker::new()?,
        user: Principal::new(2001, 2001, vec![3001, 3002, 3003]),
        names: names.collect(),
    })
}

/// Processor time of this thread so far, in nanoseconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds that `job` takes per item.
fn cost<T>(items: &[T], job: impl FnMut(&T) -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = processor_time();
    items.iter().try_for_each(job)?;
    Ok((processor_time() - start) / items.len() as f64)
}

/// The best round's nanoseconds per item.
fn best(mut round: impl FnMut() -> Result<usize, Failure>) -> Result<f64, Failure> {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = processor_time();
        let items = round()?;
        best = best.min((processor_time() - start) / items as f64);
    }
    Ok(best)
}

fn print(what: &str, nanos: f64, target: &str) {
    println!("{what:<44} {nanos:>9.0} ns   {target}");
}

impl Bench {
    fn run(&self, top: &Path) -> Result<(), Failure> {
        let directory = self.create()?;
        let nodes = self.look(&directory)?;
        self.list(&directory)?;
        self.data(&nodes)?;
        let small = self.small_writes(&nodes[0])?;
        print("write of 4 KiB", small, "");
        // To watch takes root, and this thread is whom it worked for last.
        let root = Principal::root();
        self.export
            .attributes(&self.worker, &root, self.export.root())?;
        let watch = Watch::new(&self.export)?;
        print("write of 4 KiB, watched", self.small_writes(&nodes[0])?, "");
        drop((watch, nodes));
        bare(&top.join(format!("round-{}", ROUNDS - 1)), &self.names)
    }

    /// Creates all files in a directory per round, then removes them again but for the last;
    /// returns that directory. (ext4 looks long for an inode that was not freed a moment ago, so
    /// creating and removing in turns would measure that.)
    fn create(&self) -> Result<Handle, Failure> {
        let open = OpenOptions::new(Access::Write);
        let how = Create {
            mode: 0o644,
            umask: 0o022,
            exclusive: true,
            open,
        };
        let (export, worker, user) = (&self.export, &self.worker, &self.user);
        let mut directories = Vec::new();
        let mut create = f64::MAX;
        for round in 0..ROUNDS {
            let name = Name::new(format!("round-{round}"))?;
            let made = export.make_directory(worker, user, export.root(), &name, 0o755, 0)?;
            create = create.min(cost(&self.names, |name| {
                Ok(export
                    .create(worker, user, &made.handle, name, &how)
                    .map(drop)?)
            })?);
            directories.push(made.handle);
        }
        print("create and close", create, "target 25,000");
        let last = directories.pop().ok_or("there is at least one round")?;
        let mut unlink = f64::MAX;
        for directory in &directories {
            unlink = unlink.min(cost(&self.names, |name| {
                Ok(export.unlink(worker, user, directory, name).map(drop)?)
            })?);
        }
        print("unlink", unlink, "");
        Ok(last)
    }

    fn look(&self, directory: &Handle) -> Result<Vec<Node>, Failure> {
        let (export, worker) = (&self.export, &self.worker);
        let look = |name| export.lookup(worker, &self.user, directory, name);
        let nodes = self.names.iter().map(look).collect::<Result<Vec<_>, _>>()?;
        let lookup = best(|| {
            self.names
                .iter()
                .try_for_each(|name| look(name).map(drop))?;
            Ok(nodes.len())
        })?;
        print("lookup with attributes", lookup, "target 6,000");
        let stat = |who: &Principal, node: &Node| export.attributes(worker, who, &node.handle);
        let hit = best(|| {
            nodes
                .iter()
                .try_for_each(|node| stat(&self.user, node).map(drop))?;
            Ok(nodes.len())
        })?;
        print("attributes, descriptor kept", hit, "");
        let miss = best(|| {
            nodes.iter().for_each(|node| export.forget(&node.handle));
            nodes
                .iter()
                .try_for_each(|node| stat(&self.user, node).map(drop))?;
            Ok(nodes.len())
        })?;
        print("attributes, opened by handle", miss, "");
        let callers = [self.user.clone(), Principal::new(2002, 2002, vec![3001])];
        let two = best(|| {
            let callers = callers.iter().cycle();
            nodes
                .iter()
                .zip(callers)
                .try_for_each(|(node, who)| stat(who, node).map(drop))?;
            Ok(nodes.len())
        })?;
        print("attributes, two callers", two, "");
        let callers = [self.user.clone(), Principal::root()];
        let two = best(|| {
            let callers = callers.iter().cycle();
            nodes
                .iter()
                .zip(callers)
                .try_for_each(|(node, who)| stat(who, node).map(drop))?;
            Ok(nodes.len())
        })?;
        print("attributes, a user and root", two, "");
        Ok(nodes)
    }

    fn list(&self, directory: &Handle) -> Result<(), Failure> {
        for (plus, what, target) in [
            (false, "listing, per entry", ""),
            (true, "listing with attributes, per entry", "target 3,000"),
        ] {
            let nanos = best(|| {
                let (mut cookie, mut count) = (0, 0);
                loop {
                    let page = self.export.read_directory(
                        &self.worker,
                        &self.user,
                        directory,
                        cookie,
                        1024,
                        plus,
                    )?;
                    count += page.entries.len();
                    cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
                    if page.end {
                        return Ok(count);
                    }
                }
            })?;
            print(what, nanos, target);
        }
        Ok(())
    }

    /// Writes over the file's first MiB, four times as often as the queue of a watch is long.
    fn small_writes(&self, node: &Node) -> Result<f64, Failure> {
        let options = OpenOptions::new(Access::ReadWrite);
        let file = self
            .export
            .open_file(&self.worker, &self.user, &node.handle, options)?;
        best(|| {
            for number in 0..65536 {
                file.write_at(&self.worker, &self.user, (number % 256) << 12, &[7; 4096])?;
            }
            Ok(65536)
        })
    }

    fn data(&self, nodes: &[Node]) -> Result<(), Failure> {
        let options = OpenOptions::new(Access::ReadWrite);
        let open = |node: &Node| {
            self.export
                .open_file(&self.worker, &self.user, &node.handle, options)
        };
        let nanos = best(|| {
            nodes.iter().try_for_each(|node| open(node).map(drop))?;
            Ok(nodes.len())
        })?;
        print("open and close", nanos, "");
        let file = open(&nodes[0])?;
        let piece = vec![7; 1 << 20];
        let nanos = best(|| {
            for offset in 0..64 {
                file.write_at(&self.worker, &self.user, offset << 20, &piece)?;
            }
            Ok(64)
        })?;
        print("write of 1 MiB", nanos, "");
        let mut out = BytesMut::with_capacity(1 << 20);
        let nanos = best(|| {
            for offset in 0..64 {
                out.clear();
                file.read_at(offset << 20, 1 << 20, &mut out)?;
            }
            Ok(64)
        })?;
        print("read of 1 MiB", nanos, "");
        Ok(())
    }
}

/// The same by path in this process, for comparison.
fn bare(directory: &Path, names: &[Name]) -> Result<(), Failure> {
    let paths: Vec<_> = names
        .iter()
        .map(|name| directory.join(name.as_os_str()))
        .collect();
    let stat = best(|| {
        paths
            .iter()
            .try_for_each(|path| std::fs::symlink_metadata(path).map(drop))?;
        Ok(paths.len())
    })?;
    print("bare statx(2) by path", stat, "");
    let new: Vec<_> = paths
        .iter()
        .map(|path| path.with_extension("new"))
        .collect();
    let create = cost(&new, |path| Ok(std::fs::File::create(path).map(drop)?))?;
    print("bare open(2) with O_CREAT, and close(2)", create, "");
    print(
        "bare unlink(2)",
        cost(&new, |path| Ok(std::fs::remove_file(path)?))?,
        "",
    );
    Ok(())
}
