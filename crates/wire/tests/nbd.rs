//! A device served over real sockets, to a client that does what a test wants: answers in any
//! order, bounds, time limits, and how a server ends.

#[cfg(test)]
mod tests {
    use base::limits::{
        NBD_CONNECTION_BYTES_MAX, NBD_CONNECTIONS_MAX, NBD_STATUS_BYTES_MAX, NBD_WRITERS_MAX,
    };
    use base::{BlockDevice, DeviceAction, DeviceError, Extent, ExtentSet};
    use bytes::{Buf, BufMut};
    use std::io::{self, ErrorKind};
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Condvar, Mutex};
    use std::time::Duration;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::{TcpStream, UnixStream};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;
    use wire::nbd::{Export, Listener, Server};

    const MIB: u64 = 1 << 20;
    /// Nothing here takes longer, also on a machine that is busy.
    const LIMIT: Duration = Duration::from_secs(60);
    /// Reads here wait until the gate is open.
    const GATED: u64 = 8 * MIB;

    /// 16 MiB in memory. The second is a hole; those from the eighth on are read when a gate is
    /// open; the last cannot be read or written.
    struct Device {
        bytes: Mutex<Vec<u8>>,
        unflushed: AtomicUsize,
        reads: AtomicUsize,
        waiting: AtomicUsize,
        gate: Mutex<bool>,
        opened: Condvar,
    }

    impl Device {
        fn new() -> Arc<Self> {
            let mut bytes: Vec<u8> = (0..16 * MIB).map(|at| (at % 251) as u8).collect();
            bytes[MIB as usize..2 * MIB as usize].fill(0);
            Arc::new(Self {
                bytes: Mutex::new(bytes),
                unflushed: AtomicUsize::new(0),
                reads: AtomicUsize::new(0),
                waiting: AtomicUsize::new(0),
                gate: Mutex::new(false),
                opened: Condvar::new(),
            })
        }

        fn open_gate(&self) {
            *self.gate.lock().unwrap() = true;
            self.opened.notify_all();
        }

        fn failed(action: DeviceAction, kind: ErrorKind) -> DeviceError {
            DeviceError::Failed {
                action,
                extent: Extent::default(),
                source: io::Error::new(kind, "as the test wants"),
            }
        }
    }

    impl BlockDevice for Device {
        fn len_bytes(&self) -> u64 {
            16 * MIB
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
            self.extent_at(offset, into.len())?;
            self.reads.fetch_add(1, Ordering::SeqCst);
            if offset >= GATED {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let gate = self.gate.lock().unwrap();
                drop(self.opened.wait_while(gate, |is_open| !*is_open).unwrap());
            }
            if offset >= 15 * MIB {
                return Err(Self::failed(DeviceAction::Read, ErrorKind::Other));
            }
            into.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..into.len()]);
            Ok(())
        }

        fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
            self.extent_at(offset, from.len())?;
            if offset >= 15 * MIB {
                return Err(Self::failed(DeviceAction::Write, ErrorKind::StorageFull));
            }
            self.bytes.lock().unwrap()[offset as usize..][..from.len()].copy_from_slice(from);
            self.unflushed.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        fn flush(&self) -> Result<(), DeviceError> {
            self.unflushed.store(0, Ordering::SeqCst);
            Ok(())
        }

        fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
            assert!(extent.offset != 3 * MIB, "a defect of a device");
            self.check_inside(extent)
        }

        fn holes(&self, extent: Extent) -> Result<ExtentSet, DeviceError> {
            let mut holes = ExtentSet::new();
            holes.insert(Extent::new(MIB, MIB).intersection(extent));
            Ok(holes)
        }
    }

    struct Running {
        device: Arc<Device>,
        stop: oneshot::Sender<()>,
        ended: JoinHandle<()>,
        address: String,
    }

    impl Running {
        fn start(listener: Listener, is_read_only: bool) -> Self {
            let device = Device::new();
            let (stop, stopped) = oneshot::channel();
            let address = listener.address();
            let server = Server::new(Export {
                name: "base:1".to_owned(),
                description: String::new(),
                device: device.clone(),
                is_read_only,
            });
            let ended = tokio::spawn(async move {
                server.run(listener, async { drop(stopped.await) }).await;
            });
            Self {
                device,
                stop,
                ended,
                address,
            }
        }

        fn tcp(is_read_only: bool) -> Self {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            Self::start(Listener::tcp(any).unwrap(), is_read_only)
        }

        async fn connect(&self) -> Client<TcpStream> {
            let stream = TcpStream::connect(&self.address).await.unwrap();
            let mut client = Client { stream };
            client.negotiate().await;
            client
        }

        async fn end(self) {
            self.device.open_gate();
            let _ = self.stop.send(());
            timeout(LIMIT, self.ended).await.unwrap().unwrap();
        }
    }

    struct Client<S> {
        stream: S,
    }

    /// One chunk of a structured reply, or a simple one (of kind 0).
    #[derive(Debug, PartialEq)]
    struct Answer {
        cookie: u64,
        kind: u16,
        is_last: bool,
        errno: u32,
        data: Vec<u8>,
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
        /// Up to structured replies and block status; what is said is looked at elsewhere.
        async fn negotiate(&mut self) {
            let mut said = Vec::new();
            said.put_u32(3);
            let mut option = |number: u32, data: &[u8]| {
                said.put_slice(b"IHAVEOPT");
                said.put_u32(number);
                said.put_u32(data.len() as u32);
                said.put_slice(data);
            };
            option(8, b"");
            option(10, b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation");
            option(7, b"\0\0\0\0\0\0");
            self.stream.write_all(&said).await.unwrap();
            let mut answers = vec![0; 18 + 20 + 39 + 20 + 32 + 20];
            self.read(&mut answers).await;
            assert!(answers.starts_with(b"NBDMAGIC"));
        }

        async fn read(&mut self, into: &mut [u8]) {
            timeout(LIMIT, self.stream.read_exact(into))
                .await
                .unwrap()
                .unwrap();
        }

        async fn ask(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) {
            let mut request = Vec::new();
            request.put_u32(0x2560_9513);
            request.put_u16(flags);
            request.put_u16(kind);
            request.put_u64(cookie);
            request.put_u64(offset);
            request.put_u32(len);
            self.stream.write_all(&request).await.unwrap();
        }

        async fn answer(&mut self) -> Answer {
            let mut head = [0; 16];
            self.read(&mut head).await;
            let mut rest = &head[..];
            if rest.get_u32() == 0x6744_6698 {
                let errno = rest.get_u32();
                return Answer {
                    errno,
                    cookie: rest.get_u64(),
                    kind: 0,
                    is_last: true,
                    data: Vec::new(),
                };
            }
            let (flags, kind, cookie) = (rest.get_u16(), rest.get_u16(), rest.get_u64());
            let mut length = [0; 4];
            self.read(&mut length).await;
            let mut data = vec![0; (&length[..]).get_u32() as usize];
            self.read(&mut data).await;
            let errno = match kind {
                0x8001 => (&data[..]).get_u32(),
                _ => 0,
            };
            Answer {
                cookie,
                kind,
                is_last: flags == 1,
                errno,
                data,
            }
        }

        async fn is_closed(&mut self) -> bool {
            let mut rest = Vec::new();
            let read = timeout(LIMIT, self.stream.read_to_end(&mut rest))
                .await
                .unwrap();
            read.is_err() || rest.is_empty()
        }
    }

    fn run<F: Future>(test: F) -> F::Output {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(test)
    }

    #[test]
    fn what_is_written_is_read_and_holes_are_not_sent() {
        run(async {
            let running = Running::tcp(false);
            let mut client = running.connect().await;
            client.ask(0, 0, 1, MIB - 10, 2 * MIB as u32).await;
            let (first, hole, last) = (
                client.answer().await,
                client.answer().await,
                client.answer().await,
            );
            assert_eq!(
                (first.kind, first.data.len(), first.is_last),
                (1, 18, false)
            );
            assert_eq!((hole.kind, hole.data.len()), (2, 12));
            assert_eq!((last.kind, last.is_last), (1, true));
            assert_eq!(last.data.len() as u64, 8 + MIB - 10);
            // In one piece, if that is wanted.
            client.ask(0, 4, 1, MIB - 10, 20).await;
            let whole = client.answer().await;
            assert_eq!((whole.kind, whole.data.len()), (1, 28));
            client.ask(7, 0, 2, 0, 4 * MIB as u32).await;
            let runs = [(MIB, 0_u32), (MIB, 3), (2 * MIB, 0)];
            let mut expected = vec![0, 0, 0, 1];
            for (len, state) in runs {
                expected.put_u32(len as u32);
                expected.put_u32(state);
            }
            assert_eq!(client.answer().await.data, expected);

            client.ask(1, 0, 3, 5, 4).await;
            client.stream.write_all(b"word").await.unwrap();
            assert_eq!(client.answer().await.errno, 0);
            assert_eq!(running.device.unflushed.load(Ordering::SeqCst), 1);
            client.ask(1, 1, 4, 9, 1).await;
            client.stream.write_all(b"!").await.unwrap();
            assert_eq!(client.answer().await.errno, 0);
            assert_eq!(
                running.device.unflushed.load(Ordering::SeqCst),
                0,
                "durable"
            );
            for (kind, flags) in [(6, 0), (6, 2)] {
                client.ask(kind, flags, 5, 7, 1).await;
                assert_eq!(client.answer().await.errno, 0);
            }
            client.ask(3, 0, 6, 0, 0).await;
            assert_eq!(client.answer().await.errno, 0);
            assert_eq!(running.device.unflushed.load(Ordering::SeqCst), 0);
            client.ask(0, 0, 7, 4, 7).await;
            assert_eq!(client.answer().await.data[8..], *b"\x04wo\0d!\x0a");
            client.ask(2, 0, 0, 0, 0).await;
            assert!(client.is_closed().await);
            running.end().await;
        });
    }

    #[test]
    fn errors_have_the_numbers_of_the_protocol_and_a_defect_ends_one_request() {
        run(async {
            let running = Running::tcp(false);
            running.device.open_gate();
            let mut client = running.connect().await;
            for (kind, offset, len, errno) in [
                (0, 15 * MIB, 1, 5),
                (0, 16 * MIB, 1, 22),
                (1, 15 * MIB, 1, 28),
                (1, 16 * MIB, 1, 28),
                (4, 3 * MIB, 1, 5),
                (55, 0, 0, 22),
            ] {
                client.ask(kind, 0, 9, offset, len).await;
                if kind == 1 {
                    client.stream.write_all(b"x").await.unwrap();
                }
                let answer = client.answer().await;
                assert_eq!(
                    (answer.errno, answer.kind),
                    (errno, 0x8001),
                    "{kind} {offset}"
                );
            }
            let status_max = NBD_STATUS_BYTES_MAX;
            assert!(status_max >= 16 * MIB, "one answer has the whole device");
            drop(client);
            running.end().await;

            let running = Running::tcp(true);
            let mut client = running.connect().await;
            for kind in [1, 4, 6] {
                client.ask(kind, 0, 9, 0, 1).await;
                if kind == 1 {
                    client.stream.write_all(b"x").await.unwrap();
                }
                assert_eq!(client.answer().await.errno, 1);
            }
            running.end().await;
        });
    }

    #[test]
    fn replies_come_as_they_get_done_and_writes_do_not_wait_for_reads() {
        run(async {
            let running = Running::tcp(false);
            let mut client = running.connect().await;
            // More reads than there are threads for them.
            for cookie in 0..100 {
                client.ask(0, 0, cookie, GATED, 512).await;
            }
            for cookie in 100..100 + 2 * NBD_WRITERS_MAX as u64 {
                client.ask(1, 1, cookie, 0, 1).await;
                client.stream.write_all(b"x").await.unwrap();
                assert_eq!(client.answer().await.cookie, cookie);
            }
            client.ask(3, 0, 999, 0, 0).await;
            assert_eq!(client.answer().await.cookie, 999);
            running.device.open_gate();
            let mut cookies = Vec::new();
            for _ in 0..100 {
                cookies.push(client.answer().await.cookie);
            }
            cookies.sort_unstable();
            assert_eq!(cookies, (0..100).collect::<Vec<_>>(), "each once");
            running.end().await;
        });
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_from() {
        run(async {
            let running = Running::tcp(false);
            let mut client = running.connect().await;
            let asked = 4 * u64::from(NBD_CONNECTION_BYTES_MAX) / MIB;
            for cookie in 0..asked {
                client.ask(0, 4, cookie, 3 * MIB, MIB as u32).await;
            }
            // It stands still when the memory is full, and what the kernel takes besides.
            let reads = &running.device.reads;
            let mut before = usize::MAX;
            while before != reads.load(Ordering::SeqCst) {
                before = reads.load(Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            let bound = u64::from(NBD_CONNECTION_BYTES_MAX) / MIB + 24;
            assert!(before as u64 <= bound, "{before} of {asked}");
            for _ in 0..asked {
                assert_eq!(client.answer().await.data.len() as u64, 8 + MIB);
            }
            running.end().await;
        });
    }

    #[test]
    fn there_are_only_so_many_connections_and_who_goes_makes_room() {
        run(async {
            let running = Running::tcp(true);
            let mut clients = Vec::new();
            for _ in 0..NBD_CONNECTIONS_MAX {
                clients.push(running.connect().await);
            }
            let stream = TcpStream::connect(&running.address).await.unwrap();
            assert!(Client { stream }.is_closed().await);
            drop(clients.pop());
            let another = async {
                loop {
                    let mut stream = TcpStream::connect(&running.address).await.unwrap();
                    if stream.read_exact(&mut [0; 18]).await.is_ok() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(LIMIT, another).await.unwrap();
            running.end().await;
        });
    }

    #[test]
    fn what_is_no_client_is_closed_and_leaves_the_others_alone() {
        run(async {
            let running = Running::tcp(false);
            let mut client = running.connect().await;
            let mut stream = TcpStream::connect(&running.address).await.unwrap();
            stream.read_exact(&mut [0; 18]).await.unwrap();
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n")
                .await
                .unwrap();
            assert!(Client { stream }.is_closed().await);
            let mut other = running.connect().await;
            other.stream.write_all(&[0; 28]).await.unwrap();
            assert!(other.is_closed().await);
            let mut other = running.connect().await;
            other.ask(1, 0, 1, 0, NBD_CONNECTION_BYTES_MAX + 1).await;
            assert!(other.is_closed().await);
            // One that goes within a write has written nothing.
            let mut other = running.connect().await;
            other.ask(1, 0, 1, 0, 100).await;
            other.stream.write_all(&[7; 99]).await.unwrap();
            drop(other);
            client.ask(0, 0, 1, 0, 2).await;
            assert_eq!(client.answer().await.data[8..], [0, 1]);
            running.end().await;
        });
    }

    #[test]
    fn an_ending_server_answers_what_it_has_taken() {
        run(async {
            let running = Running::tcp(false);
            let mut client = running.connect().await;
            client.ask(0, 0, 5, GATED, 512).await;
            while running.device.waiting.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let address = running.address.clone();
            let device = Arc::clone(&running.device);
            let _ = running.stop.send(());
            // Nobody gets in any more, also while it waits.
            let refused = async {
                while TcpStream::connect(&address).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(LIMIT, refused).await.unwrap();
            device.open_gate();
            assert_eq!(client.answer().await.cookie, 5);
            assert!(client.is_closed().await);
            timeout(LIMIT, running.ended).await.unwrap().unwrap();
        });
    }

    #[test]
    fn a_socket_of_this_machine_is_its_users_and_goes_with_the_server() {
        use std::os::unix::fs::PermissionsExt;
        run(async {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.sock");
            let running = Running::start(Listener::unix(&path).unwrap(), false);
            assert_eq!(running.address, format!("unix:{}", path.display()));
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let in_use = Listener::unix(&path).unwrap_err();
            assert_eq!(in_use.kind(), ErrorKind::AddrInUse);
            let stream = UnixStream::connect(&path).await.unwrap();
            let mut client = Client { stream };
            client.negotiate().await;
            client.ask(0, 0, 1, 0, 2).await;
            assert_eq!(client.answer().await.data[8..], [0, 1]);
            running.end().await;
            assert!(client.is_closed().await);
            assert!(!path.exists());
            // What a killed server has left is replaced; what is no socket is not.
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            drop(Listener::unix(&path).unwrap());
            std::fs::write(&path, b"a file").unwrap();
            assert!(Listener::unix(&path).is_err());
            assert!(Listener::unix(Path::new(&"x".repeat(200))).is_err());
        });
    }
}
