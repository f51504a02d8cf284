//! A server killed at any moment, again and again, under four writers, with every acknowledgement
//! checked.
//!
//! The writers work on one mount and go on while the server dies and comes back. What they were
//! acknowledged is noted, and must be found after each round, byte for byte:
//!
//! * of what `fsync` returned for, and of names that were made, renamed or removed and their
//!   directory synced: at the server itself;
//! * of what `close` returned for, likewise on an export, whose server's kernel has it; of small
//!   files, which are created ahead, and of a parallel volume by another machine when there is a
//!   server again.
//!
//! An export is looked at while no server runs; the contents of a parallel volume are in stores,
//! which lose what nobody has flushed, so it is looked at through a new mount as soon as there is a
//! server again: it waits until the mount of the writers has brought that again. The stores are
//! those of the manager, which is killed with them, or of servers beside it, of which one is killed
//! in each round. Where closing is what it is about, nobody asks for a flush: one makes everything
//! durable that a store has.
//!
//! `AZEKURA_KILL_ROUNDS` says how many rounds, `AZEKURA_KILL_SEED` from which seed; both are
//! printed.

#[cfg(test)]
#[expect(dead_code, reason = "some of it is for other tests")]
#[path = "e2e/checks.rs"]
mod checks;
#[cfg(test)]
#[expect(dead_code, reason = "one kind of scene is for other tests")]
mod common;
#[cfg(test)]
#[expect(dead_code, reason = "some of it is for other tests")]
#[path = "e2e/launched.rs"]
mod launched;
#[cfg(test)]
#[path = "common/random.rs"]
mod random;

#[cfg(test)]
mod rounds {
    use crate::common::{Scene, obstacle};
    use crate::launched::Launched;
    use crate::random::{Random, seed, setting};
    use std::collections::BTreeMap;
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard};
    use std::thread::JoinHandle;
    use std::time::Duration;

    const WRITERS: usize = 4;
    const ROUNDS: usize = 8;
    /// Of a parallel volume, whose server takes its stores up with each.
    const PARALLEL_ROUNDS: usize = 5;
    /// Room for what 200 rounds write.
    const STORE_SIZE: &str = "1GiB";
    /// The same of two servers, each with a store.
    const SERVER_STORE_SIZE: &str = "256MiB";
    /// Files that a writer makes who only closes them; from then on it writes these anew.
    const CLOSED_MAX: usize = 24;
    /// A server lives this long, at most.
    const LIFE_MILLIS_MAX: u64 = 400;

    /// Larger files are not answered ahead of the server.
    const AHEAD_BYTES_MAX: usize = 64 << 10;

    /// What must be found under a name.
    #[derive(Clone)]
    enum Wanted {
        /// Contents, and maybe more behind them.
        Contents(Vec<u8>),
        Directory,
        Nothing,
    }

    /// What was acknowledged, by path below the volume.
    type Acknowledged = BTreeMap<PathBuf, Wanted>;

    fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
        (0..len).map(|_| random.below(256) as u8).collect()
    }

    /// A writer's way through its own directory.
    struct Writer {
        random: Random,
        root: PathBuf,
        name: String,
        word: Arc<Word>,
        /// Whether it has anything flushed.
        syncs: bool,
        made: u64,
        /// Files that were made and synced, and not removed.
        synced: Vec<String>,
        /// Files that were made and closed, of one that has nothing flushed; how long each is.
        closed: Vec<(PathBuf, u64)>,
    }

    impl Writer {
        /// Appends to a log with fsync, or makes a file whole and renames it into place; or only
        /// closes files.
        fn work(&mut self) {
            if !self.syncs {
                let is_enough = self.closed.len() >= CLOSED_MAX;
                let is_new = self.closed.is_empty() || self.random.below(2) == 0;
                return match is_new && !is_enough {
                    true => self.close_file(),
                    false => self.close_again(),
                };
            }
            let log = Path::new(&self.name).join("log");
            let mut file = File::options()
                .create(true)
                .append(true)
                .open(self.root.join(&log))
                .expect("the mount waits for its server");
            let record = self.random_record();
            file.write_all(&record)
                .expect("the mount waits for its server");
            file.sync_all().expect("the mount waits for its server");
            self.note_more(log, &record);
            match self.random.below(6) {
                0 => self.make_file(),
                1 => self.close_file(),
                2 => self.make_directory(),
                3 => self.remove_file(),
                _ => {}
            }
        }

        fn random_record(&mut self) -> Vec<u8> {
            let len = if self.random.below(20) == 0 {
                300_000
            } else {
                3_000
            };
            let len = 1 + self.random.below(len);
            bytes(&mut self.random, len)
        }

        fn make_file(&mut self) {
            self.made += 1;
            let directory = self.root.join(&self.name);
            let content = self.random_record();
            let (new, name) = (directory.join("new"), format!("file-{}", self.made));
            fs::write(&new, &content).expect("the mount waits for its server");
            File::open(&new)
                .expect("it was made")
                .sync_all()
                .expect("the server comes back");
            fs::rename(&new, directory.join(&name)).expect("the mount waits for its server");
            self.sync_directory();
            self.synced.push(name.clone());
            let path = Path::new(&self.name).join(name);
            self.word.synced().insert(path, Wanted::Contents(content));
        }

        fn sync_directory(&self) {
            File::open(self.root.join(&self.name))
                .expect("it is there")
                .sync_all()
                .expect("the server comes back");
        }

        /// Makes a file, and relies on its close.
        fn close_file(&mut self) {
            self.made += 1;
            let large = if self.syncs { 200_000 } else { 600_000 };
            let len = [1 + self.random.below(3_000), large][self.made as usize % 2];
            let content = bytes(&mut self.random, len);
            let path = Path::new(&self.name).join(format!("closed-{}", self.made));
            let mut file = File::create(self.root.join(&path)).expect("the mount waits");
            file.write_all(&content).expect("the mount waits");
            nix::unistd::close(file).expect("the mount waits for its server");
            if !self.syncs {
                self.closed.push((path.clone(), len));
            }
            let is_there = content.len() > AHEAD_BYTES_MAX || !self.syncs;
            let mut closed = match is_there {
                true => self.word.closed(),
                false => self.word.closed_ahead(),
            };
            closed.insert(path, Wanted::Contents(content));
        }

        /// Writes a file of before anew where it is, and relies on its close.
        fn close_again(&mut self) {
            let index = self.random.below(self.closed.len() as u64) as usize;
            let (path, len) = self.closed[index].clone();
            {
                let mut closed = self.word.closed();
                // As in `remove_file`.
                if self.word.pause.load(Ordering::Relaxed) {
                    return;
                }
                closed.remove(&path);
            }
            let content = bytes(&mut self.random, len);
            let opened = File::options().write(true).open(self.root.join(&path));
            let mut file = opened.expect("the mount waits for its server");
            file.write_all(&content).expect("the mount waits");
            nix::unistd::close(file).expect("the mount waits for its server");
            self.word.closed().insert(path, Wanted::Contents(content));
        }

        fn make_directory(&mut self) {
            self.made += 1;
            let path = Path::new(&self.name).join(format!("directory-{}", self.made));
            fs::create_dir(self.root.join(&path)).expect("the mount waits for its server");
            self.sync_directory();
            self.word.synced().insert(path, Wanted::Directory);
        }

        /// Removes a file of before.
        fn remove_file(&mut self) {
            let Some(name) = self.synced.pop() else {
                return;
            };
            let path = Path::new(&self.name).join(name);
            {
                let mut synced = self.word.synced();
                // Who pauses is about to look for all that is noted.
                if self.word.pause.load(Ordering::Relaxed) {
                    return;
                }
                // Until it is known to be gone, it may be there or not.
                synced.remove(&path);
            }
            fs::remove_file(self.root.join(&path)).expect("the mount waits for its server");
            self.sync_directory();
            self.word.synced().insert(path, Wanted::Nothing);
        }

        fn note_more(&self, path: PathBuf, more: &[u8]) {
            let mut synced = self.word.synced();
            let known = synced.entry(path);
            match known.or_insert_with(|| Wanted::Contents(Vec::new())) {
                Wanted::Contents(known) => known.extend_from_slice(more),
                Wanted::Directory | Wanted::Nothing => unreachable!("it is a log"),
            }
        }
    }

    /// Every acknowledged byte is at the server. Files can be longer: what was not acknowledged may
    /// have arrived.
    fn check(export: &Path, acknowledged: &Acknowledged) {
        for (path, wanted) in acknowledged {
            let wanted = match wanted {
                Wanted::Contents(wanted) => wanted,
                Wanted::Directory => {
                    let is_there = export.join(path).is_dir();
                    assert!(is_there, "{} was acknowledged", path.display());
                    continue;
                }
                Wanted::Nothing => {
                    let is_there = export.join(path).exists();
                    assert!(!is_there, "{} was removed", path.display());
                    continue;
                }
            };
            let found = fs::read(export.join(path))
                .unwrap_or_else(|error| panic!("{} was acknowledged: {error}", path.display()));
            let same = found.iter().zip(wanted).take_while(|(a, b)| a == b).count();
            assert!(
                same == wanted.len(),
                "{}: {} bytes were acknowledged, {} are there, the first wrong one is {same}",
                path.display(),
                wanted.len(),
                found.len()
            );
        }
    }

    /// What the server has of a volume, seen past the mount that the writers use.
    enum Seen {
        /// The exported directory, while no server runs.
        Export,
        /// A mount that has cached nothing, of the parallel volume, whose contents are in stores.
        Parallel,
        /// The same. The stores are those of these servers, which are killed in turn.
        Stores(Box<[Launched; 2]>),
    }

    impl Seen {
        fn mount(&self, scene: &mut Scene, name: &str) -> PathBuf {
            let options = ["--timeout", "120s"];
            match self {
                Self::Export => scene.mount(name, &options),
                Self::Parallel | Self::Stores(_) => {
                    scene.mount_volume(&scene.parallel(), name, &options)
                }
            }
        }

        fn kill(&mut self, scene: &mut Scene, round: usize) {
            match self {
                Self::Export | Self::Parallel => scene.kill(),
                Self::Stores(servers) => servers[round % 2].kill(),
            }
        }

        /// Checks, and leaves a server that was just killed started again.
        fn check_and_start(&mut self, scene: &mut Scene, word: &Word, round: usize) {
            let (synced, closed) = (word.synced().clone(), word.closed().clone());
            let ahead = word.closed_ahead().clone();
            match self {
                Self::Export => {
                    check(&scene.path("export"), &synced);
                    check(&scene.path("export"), &closed);
                    scene.start();
                    self.check_elsewhere(scene, &[&ahead]);
                }
                Self::Parallel => {
                    scene.start();
                    self.check_elsewhere(scene, &[&synced, &closed, &ahead]);
                }
                Self::Stores(servers) => {
                    let server = &mut servers[round % 2];
                    server.start("");
                    self.check_elsewhere(scene, &[&synced, &closed, &ahead]);
                    self.until_known(scene);
                }
            }
        }

        /// Waits until new files are laid out over all stores again.
        fn until_known(&self, scene: &Scene) {
            if let Self::Stores(servers) = self {
                servers.iter().for_each(|server| server.until_known(scene));
            }
        }

        /// Checks through a mount that has cached nothing.
        fn check_elsewhere(&self, scene: &mut Scene, all: &[&Acknowledged]) {
            let other = self.mount(scene, "other");
            all.iter().for_each(|it| check(&other, it));
            scene.umount(&other);
        }
    }

    /// What writers and their test say to each other.
    #[derive(Default)]
    struct Word {
        synced: Mutex<Acknowledged>,
        closed: Mutex<Acknowledged>,
        closed_ahead: Mutex<Acknowledged>,
        /// Nothing more is begun while this is set: what is written already is looked at.
        pause: AtomicBool,
        stop: AtomicBool,
    }

    impl Word {
        fn synced(&self) -> MutexGuard<'_, Acknowledged> {
            self.synced.lock().expect("no writer panics here")
        }

        fn closed(&self) -> MutexGuard<'_, Acknowledged> {
            self.closed.lock().expect("no writer panics here")
        }

        fn closed_ahead(&self) -> MutexGuard<'_, Acknowledged> {
            self.closed_ahead.lock().expect("no writer panics here")
        }
    }

    fn start_writers(
        mount: &Path,
        seed: u64,
        syncs: bool,
        word: &Arc<Word>,
    ) -> Vec<JoinHandle<()>> {
        let start = |index: usize| {
            let name = format!("writer-{index}");
            fs::create_dir(mount.join(&name)).unwrap();
            let mut writer = Writer {
                random: Random(seed ^ index as u64),
                root: mount.to_owned(),
                name,
                word: Arc::clone(word),
                syncs,
                made: 0,
                synced: Vec::new(),
                closed: Vec::new(),
            };
            std::thread::spawn(move || {
                while !writer.word.stop.load(Ordering::Relaxed) {
                    match writer.word.pause.load(Ordering::Relaxed) {
                        true => std::thread::sleep(Duration::from_millis(1)),
                        false => writer.work(),
                    }
                }
            })
        };
        (0..WRITERS).map(start).collect()
    }

    fn kill_again_and_again(mut scene: Scene, mut seen: Seen, syncs: bool, rounds: usize) {
        let rounds = setting("AZEKURA_KILL_ROUNDS").map_or(rounds, |rounds| rounds as usize);
        let seed = seed("AZEKURA_KILL_SEED");
        let mut random = Random(seed);
        let address = scene.address();
        println!("kill9: {rounds} rounds at {address}; AZEKURA_KILL_SEED={seed} repeats them");
        let mount = seen.mount(&mut scene, "mnt");
        let word = Arc::new(Word::default());
        let writers = start_writers(&mount, seed, syncs, &word);
        for round in 0..rounds {
            std::thread::sleep(Duration::from_millis(random.below(LIFE_MILLIS_MAX)));
            // A writer only ends early by a failure, which it has told.
            let failed = writers.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a writer failed before round {round}");
            seen.kill(&mut scene, round);
            word.pause.store(true, Ordering::Relaxed);
            seen.check_and_start(&mut scene, &word, round);
            word.pause.store(false, Ordering::Relaxed);
        }
        word.stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap();
        }
        let all = [word.synced(), word.closed(), word.closed_ahead()].map(|it| it.clone());
        let contents = all
            .iter()
            .flat_map(BTreeMap::values)
            .map(|wanted| match wanted {
                Wanted::Contents(contents) => contents.len(),
                Wanted::Directory | Wanted::Nothing => 0,
            });
        let bytes: usize = contents.sum();
        let counts = all.each_ref().map(BTreeMap::len);
        assert!(bytes > 0, "nothing was acknowledged");
        all.iter().for_each(|it| check(&mount, it));
        scene.umount(&mount);
        seen.check_elsewhere(&mut scene, &all.each_ref());
        if matches!(seen, Seen::Export) {
            all.iter().for_each(|it| check(&scene.path("export"), it));
        }
        println!(
            "kill9: {counts:?} names synced, closed, and closed ahead, {bytes} acknowledged bytes, \
             none lost"
        );
    }

    #[test]
    fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
        match obstacle() {
            Some(why) => println!("{why}"),
            None => kill_again_and_again(Scene::new(), Seen::Export, true, ROUNDS),
        }
    }

    #[test]
    fn nothing_acknowledged_on_a_parallel_volume_is_lost_when_the_server_is_killed() {
        match obstacle() {
            Some(why) => println!("{why}"),
            None => {
                let scene = Scene::with_two_stores(STORE_SIZE);
                kill_again_and_again(scene, Seen::Parallel, true, PARALLEL_ROUNDS);
            }
        }
    }

    #[test]
    fn nothing_closed_on_a_parallel_volume_is_read_old_when_the_server_is_killed() {
        match obstacle() {
            Some(why) => println!("{why}"),
            None => {
                let scene = Scene::with_two_stores(STORE_SIZE);
                kill_again_and_again(scene, Seen::Parallel, false, PARALLEL_ROUNDS);
            }
        }
    }

    #[test]
    fn nothing_closed_on_a_parallel_volume_is_read_old_when_a_storage_server_is_killed() {
        if let Some(why) = obstacle() {
            println!("{why}");
            return;
        }
        let scene = Scene::new();
        let mut servers = ["one", "two"].map(|name| Launched::new(&scene, name));
        for server in &mut servers {
            server.join(&scene, SERVER_STORE_SIZE);
        }
        let volume = scene.parallel();
        let create = ["volume", "create", &volume, "--parallel"];
        // A whole number of each store's allocation units, which were measured.
        let status = scene.azekura(&["status", scene.address(), "--json"]).ok();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let stores = status["stores"].as_array().unwrap().iter();
        let units = stores.map(|store| store["allocation_unit_bytes"].as_u64().unwrap());
        let unit = units.max().unwrap().max(256 << 10).to_string();
        scene
            .azekura(&[&create[..], &["--stripe-unit", &unit]].concat())
            .ok();
        let seen = Seen::Stores(Box::new(servers));
        kill_again_and_again(scene, seen, false, PARALLEL_ROUNDS);
    }
}
