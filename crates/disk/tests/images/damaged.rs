//! Every file of a repository, cut and changed everywhere: right bytes or an error that names a
//! file, whoever reads them how.

use crate::common::{KIB, Scene, noise, tag};
use crate::training::{how, profile, scattered};
use base::{BlockDevice, Extent};
use disk::{Directory, Fetcher, ImageDevice, Manifest, Source, TagRecord, Trained};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A repository in which everything is that there can be, and what its image has.
fn published() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let content = noise(70, 200 * KIB + 100);
    scene.put("base:1", &content);
    let len = content.len() as u64;
    scene.train(&[profile("tool", len, &scattered(71, len, 3))], &how());
    (scene, content)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Reads the whole image as somebody does who has just come, following its profile.
fn read(scene: &Scene, runtime: &Runtime) -> Result<Vec<u8>, Box<dyn Error>> {
    let source: Arc<dyn Source> = Arc::new(Directory::new(scene.images()));
    let version = TagRecord::read(&*source, &tag("base:1"), &scene.trust())?.version();
    let manifest = Manifest::read(&*source, version, &scene.trust())?;
    let trained = Trained::open(&*source, version, &manifest, &scene.trust())?;
    let foresight = trained.foresight(&*source, vec!["tool".into()]);
    let fetcher = Fetcher::new(runtime.handle().clone(), None, 1 << 20);
    let device = ImageDevice::new(trained.index, source, fetcher).foreseen(foresight);
    let mut bytes = vec![1; device.len_bytes() as usize];
    device.read_at(0, &mut bytes)?;
    bytes.truncate(manifest.image_bytes as usize);
    Ok(bytes)
}

/// The error with all its reasons.
fn told(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut reason = error.source();
    while let Some(next) = reason {
        told += &format!(": {next}");
        reason = next.source();
    }
    told
}

/// Replaces a file, and no other one that is a link of it.
fn put(path: &Path, bytes: &[u8]) {
    // It may be away already.
    let _ = fs::remove_file(path);
    fs::write(path, bytes).unwrap();
}

/// Places in a file of this length: all of a short one, some of a long one, its ends among them.
fn places(len: usize) -> impl Iterator<Item = usize> {
    let step = len.div_ceil(40).max(1);
    let edge = 20.min(len);
    let all = (0..edge).chain((edge..len).step_by(step));
    all.chain(len.saturating_sub(edge)..len)
}

/// What is wrong with the outcome of reading while a file is damaged: none is not.
fn judge(
    outcome: Result<Vec<u8>, Box<dyn Error>>,
    content: &[u8],
    file: &str,
    is_needed: bool,
) -> Option<String> {
    match outcome {
        Ok(bytes) if bytes != content => Some("wrong bytes".into()),
        Ok(_) => None,
        Err(error) => {
            let told = told(&*error);
            let is_named = told.contains(file);
            (!is_needed || !is_named).then(|| format!("it says {told:?}"))
        }
    }
}

#[test]
fn whatever_is_cut_or_changed_in_a_repository_no_wrong_byte_is_read_and_the_file_is_named() {
    let (scene, content) = published();
    let runtime = runtime();
    assert!(read(&scene, &runtime).unwrap() == content);
    let mut kinds = Vec::new();
    let mut refused = 0;
    for path in files(&scene.images()) {
        let good = fs::read(&path).unwrap();
        let file = path.strip_prefix(scene.images()).unwrap();
        let file = file.to_str().unwrap();
        // Without what makes it faster an image is read as well, by its chunks.
        let is_needed = ["tags/", "versions/", "indexes/", "default.castr/"]
            .iter()
            .any(|directory| file.starts_with(directory));
        let kind = path.extension().and_then(|kind| kind.to_str());
        kinds.push(kind.unwrap_or_default().to_owned());
        let mut tried = |what: &str, bytes: &[u8]| {
            put(&path, bytes);
            let outcome = read(&scene, &runtime);
            refused += usize::from(outcome.is_err());
            let wrong = judge(outcome, &content, file, is_needed);
            assert_eq!(wrong, None, "{file}, {what}");
        };
        for at in places(good.len()) {
            tried(&format!("cut at {at}"), &good[..at]);
            let mut changed = good.clone();
            changed[at] ^= 1 << (at % 8);
            tried(&format!("changed at {at}"), &changed);
        }
        tried("longer", &[&good[..], b"more"].concat());
        tried("another", b"another file");
        fs::remove_file(&path).unwrap();
        let wrong = judge(read(&scene, &runtime), &content, file, is_needed);
        assert_eq!(wrong, None, "{file}, missing");
        put(&path, &good);
    }
    assert!(read(&scene, &runtime).unwrap() == content);
    kinds.sort();
    kinds.dedup();
    for kind in ["azm", "azn", "azp", "azt", "cacnk", "caibx"] {
        assert!(kinds.iter().any(|found| found == kind), "{kind}");
    }
    assert!(refused > 500, "{refused} refused");
}

#[test]
fn an_index_that_is_whole_and_of_another_image_is_not_taken_for_the_one_that_is_meant() {
    let (scene, content) = published();
    let runtime = runtime();
    let other = noise(72, 200 * KIB + 100);
    scene.put("other:1", &other);
    let index = |name: &str| {
        let file = scene.manifest(name).index_file();
        scene.images().join(file.as_str())
    };
    // Every chunk of it is there, and right.
    fs::copy(index("other:1"), index("base:1")).unwrap();
    assert!(
        read(&scene, &runtime).unwrap() == content,
        "as it was trained"
    );
    let record = disk::Training::file_of(scene.version("base:1"));
    fs::remove_file(scene.images().join(record.as_str())).unwrap();
    let error = read(&scene, &runtime).unwrap_err();
    let file = index("base:1");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(told(&*error).contains(name), "{}", told(&*error));
}

#[test]
fn chunks_that_changed_places_are_not_taken_for_each_other() {
    let (scene, content) = published();
    let runtime = runtime();
    let chunks = files(&scene.images().join("default.castr"));
    let needed: Vec<_> = scene.trained().index.ids().to_vec();
    let path = |at: usize| {
        let id = needed[at].to_string();
        chunks
            .iter()
            .find(|path| path.to_string_lossy().contains(&id))
    };
    let (one, two) = (path(0).unwrap(), path(1).unwrap());
    let (first, second) = (fs::read(one).unwrap(), fs::read(two).unwrap());
    fs::write(one, &second).unwrap();
    fs::write(two, &first).unwrap();
    // The pack has them as well, if the profile needs them.
    match read(&scene, &runtime) {
        Ok(bytes) => assert!(bytes == content),
        Err(error) => assert!(told(&*error).contains("default.castr"), "{}", told(&*error)),
    }
    let whole = Extent::new(0, content.len() as u64);
    let plain = ImageDevice::new(
        scene.trained().index,
        Arc::new(Directory::new(scene.images())),
        Fetcher::new(runtime.handle().clone(), None, 1 << 20),
    );
    let mut bytes = vec![1; whole.len as usize];
    let error = plain.read_at(0, &mut bytes).unwrap_err();
    assert!(
        told(&error).contains(&needed[0].to_string()),
        "{}",
        told(&error)
    );
    assert!(
        bytes.iter().all(|byte| *byte == 0),
        "nothing of it is given"
    );
}
