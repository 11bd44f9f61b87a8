//! Sounds of announcements: WAV files that rules name, read once for all calls.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::findings::{Findings, with_reason};
use strowger_config::{Config, EndpointFiles, Fault};
use strowger_media::sound::{RATE, Sound};
use strowger_media::wave::Wave;

/// Longest sound in samples: 30 minutes, which take 29 MB.
const LONGEST: usize = 30 * 60 * RATE as usize;

/// Bytes of a file with the longest sound, and room for its header and other chunks.
const LARGEST: u64 = 2 * LONGEST as u64 + (1 << 16);

/// Way to make a file that can be played, with the program SoX.
const CURE: &str =
    "name a WAV file of 8000 Hz, one channel and 16 bits: sox IN.wav -r 8000 -c 1 -b 16 -e signed OUT.wav";

/// Reads the sounds of all announcements. A file of several rules is read once.
pub(super) fn read(config: &mut Config, findings: &mut Findings<'_>) {
    let mut sounds: BTreeMap<Box<str>, Arc<Sound>> = BTreeMap::new();
    for (index, table) in config.rules.iter().enumerate() {
        let (Some(EndpointFiles::Announcement(announcement)), Some(path)) =
            (table.endpoint_files(), table.play.as_deref())
        else {
            continue;
        };
        if sounds.contains_key(&announcement.file) {
            continue;
        }
        match sound(path) {
            Ok(sound) => drop(sounds.insert(announcement.file, Arc::new(sound))),
            Err((reason, cure)) => {
                let span = findings.places.value_of(&format!("rule[{index}].play"));
                let message = format!("rule '{}' plays {}: {reason}", table.name, path.display());
                findings.push(Fault::error(span, message, cure));
            }
        }
    }
    if !sounds.is_empty() {
        config.decisions = Arc::new(config.decisions.with_sounds(sounds));
    }
}

/// Reads a sound.
///
/// # Errors
/// The reason, as the end of a sentence that begins with the file, and the cure.
fn sound(path: &Path) -> Result<Sound, (String, &'static str)> {
    let bytes = content(path).map_err(|error| {
        let cure = "name a file that exists and that this user may read";
        (format!("it cannot be read: {}", with_reason(&error, path)), cure)
    })?;
    if bytes.len() as u64 > LARGEST {
        return Err(("it is longer than 30 minutes".to_owned(), "play a shorter file"));
    }
    let wave = Wave::read(&bytes).map_err(|error| (error.to_string(), CURE))?;
    let sound = Sound::of_wave(wave).map_err(|reason| (format!("it {reason}"), CURE))?;
    match sound.len() {
        0 => Err(("it has no sound".to_owned(), CURE)),
        length if length > LONGEST => Err(("it is longer than 30 minutes".to_owned(), "play a shorter file")),
        _ => Ok(sound),
    }
}

/// Returns the bytes of a file, and one byte more than [`LARGEST`] of a larger one.
fn content(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use crate::preflight;
    use std::fs;
    use std::path::Path;
    use strowger_config::{Config, Report, Source};
    use strowger_media::g711::Law;
    use strowger_media::wave::{Coding, WaveFormat};

    fn wave(coding: Coding, rate: u32, sound: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        WaveFormat { coding, channels: 1, rate }.write_header(sound.len() as u32, &mut file);
        file.extend(sound);
        file
    }

    fn read(folder: &Path, file: &str) -> Result<(Config, Report), Report> {
        let rule = |name: &str| {
            format!(
                "[[rule]]\nname = \"{name}\"\nwhen = \"request.user == '{name}'\"\nanswer = \"announcement\"\nplay = \"{file}\"\n"
            )
        };
        let text = format!("media.addresses = [\"127.0.0.1\"]\n{}{}", rule("a"), rule("b"));
        preflight::read(Source { file: "test.toml", text: &text, folder, ..Source::default() })
    }

    #[test]
    fn sounds_are_read_once_from_the_folder_of_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: Vec<u8>| fs::write(folder.path().join(name), bytes).expect("it can be written");
        write("pcm.wav", wave(Coding::Pcm16, 8_000, &[0; 400]));
        write("law.wav", wave(Coding::G711(Law::A), 8_000, &[0xd5; 200]));
        for file in ["pcm.wav", "law.wav"] {
            let (config, report) = read(folder.path(), file).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(report.errors(), 0, "{report}");
            let path = folder.path().join(file);
            let sound = config.decisions.sound(&path.to_string_lossy()).expect("it was read");
            assert_eq!(sound.len(), 200, "{file}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_played_is_an_error_at_its_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: Vec<u8>| fs::write(folder.path().join(name), bytes).expect("it can be written");
        write("text.wav", b"no sound".to_vec());
        write("wide.wav", wave(Coding::Pcm16, 16_000, &[0; 400]));
        write("empty.wav", wave(Coding::Pcm16, 8_000, &[]));
        write("half.wav", wave(Coding::Pcm16, 8_000, &[0]));
        write("long.wav", wave(Coding::G711(Law::Mu), 8_000, &vec![0xff; super::LONGEST + 1]));
        for (file, words, cure) in [
            ("none.wav", "cannot be read", "exists"),
            ("text.wav", "no WAV file", "sox"),
            ("wide.wav", "16000 Hz", "sox"),
            ("empty.wav", "without sound", "sox"),
            ("half.wav", "no sound", "sox"),
            ("long.wav", "30 minutes", "shorter"),
        ] {
            let report = read(folder.path(), file).expect_err("it cannot be played");
            let fault = report.faults().iter().find(|fault| fault.message.contains("rule 'a' plays")).expect("a fault");
            assert_eq!(report.position(fault), Some((6, 8)), "{report}");
            assert!(fault.message.contains(words) && fault.cure.contains(cure), "{file}: {report}");
        }
    }
}
