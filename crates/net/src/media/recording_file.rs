//! WAV file of a recording: 8,000 Hz, one channel, samples of 16 bits.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strowger_files::private;
use strowger_media::sound::RATE;
use strowger_media::wave::{Coding, WaveFormat};

const FORMAT: WaveFormat = WaveFormat { coding: Coding::Pcm16, channels: 1, rate: RATE };

/// Bytes of the header.
const HEADER: u64 = 44;

/// Bytes of a sample.
const WIDTH: u64 = 2;

/// Interval of the headers: a reader of a file that was never completed misses at most the sound since the last one.
const HEADER_INTERVAL: Duration = Duration::from_secs(1);

/// File of a recording. Its header always tells a length that the file has.
pub(super) struct RecordingFile {
    file: File,
    path: Arc<Path>,
    /// Samples that an earlier process has written; this process appends to them.
    before: u64,
    /// Samples of the file.
    length: u64,
    /// Samples in the last header, and the time of the next one.
    header: (u64, Instant),
}

impl RecordingFile {
    /// Creates a file, private to the user of this process, or continues one of an earlier process. A symbolic link is not followed.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn open(path: Arc<Path>, now: Instant) -> io::Result<Self> {
        let file = private::file().custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(&path)?;
        let before = file.metadata()?.len().saturating_sub(HEADER).div_ceil(WIDTH);
        let mut this = Self { file, path, before, length: before, header: (0, now) };
        this.write_header(now)?;
        Ok(this)
    }

    /// Returns the path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the file. Returns its path.
    pub(super) fn into_path(self) -> Arc<Path> {
        self.path
    }

    /// Returns the number of samples.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Writes samples at a place of the recording. A gap before them is silence. `bytes`: buffer for reuse.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn write(&mut self, place: u64, samples: &[i16], bytes: &mut Vec<u8>) -> io::Result<()> {
        bytes.clear();
        bytes.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
        let at = self.before + place;
        self.file.write_all_at(bytes, HEADER + WIDTH * at)?;
        self.length = self.length.max(at + samples.len() as u64);
        Ok(())
    }

    /// Writes the header again if a second has passed since the last one.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn keep_up(&mut self, now: Instant) -> io::Result<()> {
        let (written, due) = self.header;
        if written == self.length || now < due { Ok(()) } else { self.write_header(now) }
    }

    /// Writes the header with the length so far.
    ///
    /// # Errors
    /// Error of the system.
    pub(super) fn write_header(&mut self, now: Instant) -> io::Result<()> {
        let mut header = Vec::with_capacity(HEADER as usize);
        FORMAT.write_header(u32::try_from(WIDTH * self.length).unwrap_or(u32::MAX - 1), &mut header);
        self.file.write_all_at(&header, 0)?;
        self.header = (self.length, now + HEADER_INTERVAL);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use strowger_media::wave::Wave;

    fn samples(path: &Path) -> Vec<i16> {
        let file = fs::read(path).expect("it can be read");
        Wave::read(&file).expect("it is a WAV file").samples().collect()
    }

    #[test]
    fn a_file_is_readable_at_each_moment_and_is_continued() {
        let folder = tempfile::tempdir().expect("a folder");
        let path: Arc<Path> = folder.path().join("a.wav").into();
        let (now, mut bytes) = (Instant::now(), Vec::new());
        let mut file = RecordingFile::open(path.clone(), now).expect("it is created");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        file.write(2, &[1, 2, 3], &mut bytes).expect("it can be written");
        file.keep_up(now + Duration::from_millis(999)).expect("it can be written");
        assert!(Wave::read(&fs::read(&path).expect("it can be read")).is_err(), "the header has no sound yet");
        file.keep_up(now + Duration::from_secs(1)).expect("it can be written");
        // The gap is silence. A late packet fills its place.
        assert_eq!(samples(&path), [0, 0, 1, 2, 3]);
        file.write(0, &[9], &mut bytes).expect("it can be written");
        assert_eq!((samples(&path), file.length()), (vec![9, 0, 1, 2, 3], 5));
        // The process ends before the next header.
        file.write(5, &[4], &mut bytes).expect("it can be written");
        drop(file);
        let mut file = RecordingFile::open(path.clone(), now).expect("it is opened");
        assert_eq!(samples(&path), [9, 0, 1, 2, 3, 4]);
        file.write(1, &[7], &mut bytes).expect("it can be written");
        file.write_header(now).expect("it can be written");
        assert_eq!(samples(&path), [9, 0, 1, 2, 3, 4, 0, 7]);
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let [target, link] = ["target", "a.wav"].map(|name| folder.path().join(name));
        fs::write(&target, "text").expect("it can be written");
        symlink(&target, &link).expect("it can be made");
        assert!(RecordingFile::open(link.into(), Instant::now()).is_err());
        assert_eq!(fs::read(&target).expect("it can be read"), b"text");
    }
}
