//! A server killed at any moment, again and again, under four writers, with every acknowledgement
//! checked.
//!
//! The writers work on one mount and go on while the server dies and comes back. What they were
//! acknowledged (`fsync` or `close` returned, a name was made or renamed and its directory synced)
//! is noted, and must be found at the server itself after each round, byte for byte.
//!
//! `AZEKURA_KILL_ROUNDS` says how many rounds, `AZEKURA_KILL_SEED` from which seed; both are
//! printed.

#[cfg(test)]
mod common;
#[cfg(test)]
#[path = "common/random.rs"]
mod random;

#[cfg(test)]
mod rounds {
    use crate::common::{Scene, obstacle};
    use crate::random::{Random, seed, setting};
    use std::collections::BTreeMap;
    use std::fs::{self, File};
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    const WRITERS: usize = 4;
    const ROUNDS: usize = 8;
    /// A server lives this long, at most.
    const LIFE_MILLIS_MAX: u64 = 400;

    /// What was acknowledged: contents by path below the volume.
    type Acknowledged = BTreeMap<PathBuf, Vec<u8>>;

    fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
        (0..len).map(|_| random.below(256) as u8).collect()
    }

    /// A writer's way through its own directory.
    struct Writer {
        random: Random,
        root: PathBuf,
        name: String,
        acknowledged: Arc<Mutex<Acknowledged>>,
        made: u64,
    }

    impl Writer {
        /// Appends to a log with fsync, or makes a file whole and renames it into place.
        fn work(&mut self) {
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
            self.note(log, &record);
            if self.random.below(4) == 0 {
                self.make_file();
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
            File::open(&directory)
                .expect("it is there")
                .sync_all()
                .expect("the server comes back");
            self.note(Path::new(&self.name).join(name), &content);
        }

        fn note(&self, path: PathBuf, more: &[u8]) {
            let mut acknowledged = self.acknowledged.lock().expect("no writer panics here");
            acknowledged
                .entry(path)
                .or_default()
                .extend_from_slice(more);
        }
    }

    /// Every acknowledged byte is at the server. Files can be longer: what was not acknowledged may
    /// have arrived.
    fn check(export: &Path, acknowledged: &Acknowledged) {
        for (path, wanted) in acknowledged {
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

    #[test]
    fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
        if let Some(why) = obstacle() {
            return println!("{why}");
        }
        let rounds = setting("AZEKURA_KILL_ROUNDS").map_or(ROUNDS, |rounds| rounds as usize);
        let seed = seed("AZEKURA_KILL_SEED");
        let mut random = Random(seed);
        let mut scene = Scene::new();
        let address = scene.address();
        println!("kill9: {rounds} rounds at {address}; AZEKURA_KILL_SEED={seed} repeats them");
        let mount = scene.mount("mnt", &["--timeout", "120s"]);
        let acknowledged = Arc::new(Mutex::new(Acknowledged::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|index| {
                let name = format!("writer-{index}");
                fs::create_dir(mount.join(&name)).unwrap();
                let mut writer = Writer {
                    random: Random(seed ^ index as u64),
                    root: mount.clone(),
                    name,
                    acknowledged: Arc::clone(&acknowledged),
                    made: 0,
                };
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        writer.work();
                    }
                })
            })
            .collect();
        for round in 0..rounds {
            std::thread::sleep(Duration::from_millis(random.below(LIFE_MILLIS_MAX)));
            // A writer only ends early by a failure, which it has told.
            let failed = writers.iter().any(std::thread::JoinHandle::is_finished);
            assert!(!failed, "a writer failed before round {round}");
            scene.kill();
            let now = acknowledged.lock().unwrap().clone();
            check(&scene.path("export"), &now);
            scene.start();
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap();
        }
        let all = acknowledged.lock().unwrap().clone();
        let bytes: usize = all.values().map(Vec::len).sum();
        assert!(bytes > 0, "nothing was acknowledged");
        check(&mount, &all);
        scene.umount(&mount);
        check(&scene.path("export"), &all);
        println!(
            "kill9: {} files, {bytes} acknowledged bytes, none lost",
            all.len()
        );
    }
}
