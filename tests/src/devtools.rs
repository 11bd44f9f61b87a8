//! Page in Chromium, controlled by the DevTools protocol: JSON messages on two named pipes, each followed by a zero
//! byte.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::Process;
use crate::program::CHROMIUM;

/// Time limit of an answer. A browser takes seconds to start while other tests run.
const LIMIT: Duration = Duration::from_secs(60);

/// Open page.
#[derive(Debug)]
pub struct Tab {
    process: Process,
    folder: TempDir,
    commands: File,
    messages: Receiver<Value>,
    /// Events since the start of the browser.
    events: Vec<Value>,
    session: Option<String>,
    last: u64,
}

impl Tab {
    /// Opens a file and waits until it is loaded. `is_dark`: whether the reader prefers a dark theme.
    ///
    /// # Panics
    /// Chromium is missing or does not answer.
    pub fn open(page: &Path, is_dark: bool) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let [commands, messages] = ["commands", "messages"].map(|name| folder.path().join(name));
        let made = Command::new("mkfifo").args([&commands, &messages]).status().expect("mkfifo starts");
        assert!(made.success(), "mkfifo {commands:?} {messages:?}");
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" 3<\"$COMMANDS\" 4>\"$MESSAGES\"", "sh"])
            .arg(CHROMIUM.path().expect("chromium is there"))
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-extensions", "--window-size=1280,1500", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .env("COMMANDS", &commands)
            .env("MESSAGES", &messages);
        if is_dark {
            command.arg("--blink-settings=preferredColorScheme=0");
        }
        let process = Process::start("chromium", folder.path(), command.arg("about:blank"));
        // The pipe is opened for both directions, so that opening it does not wait for a reader.
        let commands = OpenOptions::new().read(true).write(true).open(commands).expect("a pipe");
        let messages = BufReader::new(File::open(messages).expect("a pipe"));
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for message in messages.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("the protocol is JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (events, session) = (Vec::new(), None);
        let mut tab = Self { process, folder, commands, messages: receiver, events, session, last: 0 };
        tab.attach(page);
        tab
    }

    fn attach(&mut self, page: &Path) {
        let downloads = self.downloads();
        self.call(
            "Browser.setDownloadBehavior",
            json!({ "behavior": "allow", "downloadPath": downloads, "eventsEnabled": true }),
        );
        let targets = self.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().expect("targets");
        let target = targets.iter().find(|target| target["type"] == "page").expect("a page");
        let session = self.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        self.wait_for("Page.loadEventFired", 1, |_| true);
        // Keys go to the page in front.
        self.call("Page.bringToFront", json!({}));
    }

    /// Returns the folder of the files that the page saved.
    pub fn downloads(&self) -> PathBuf {
        self.folder.path().join("downloads")
    }

    /// Calls a method and returns its result.
    ///
    /// # Panics
    /// The result is an error, or the browser does not answer.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).expect("the pipe is open");
        loop {
            let mut message = self.receive();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    fn receive(&self) -> Value {
        self.messages.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("chromium: {error}\n{}", self.process.tail()))
    }

    /// Returns the value of an expression in the page.
    ///
    /// # Panics
    /// The expression throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "userGesture": true });
        let mut result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Waits for `times` matching events of this method.
    ///
    /// # Panics
    /// There are fewer at the limit.
    pub fn wait_for(&mut self, method: &str, times: usize, fits: fn(&Value) -> bool) {
        let is_wanted = |event: &&Value| event["method"] == method && fits(&event["params"]);
        while self.events.iter().filter(is_wanted).count() < times {
            let event = self.receive();
            self.events.push(event);
        }
    }

    /// Returns errors and messages in the console, including refused requests.
    pub fn complaints(&self) -> Vec<&Value> {
        let words = ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
        self.events.iter().filter(|event| words.iter().any(|method| event["method"] == *method)).collect()
    }

    /// Returns the addresses that the page requested.
    pub fn requests(&self) -> Vec<&str> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| event["params"]["request"]["url"].as_str()).collect()
    }

    /// Prints the page.
    ///
    /// # Panics
    /// The page cannot be printed.
    pub fn pdf(&mut self) -> Vec<u8> {
        let printed = self.call("Page.printToPDF", json!({}));
        BASE64_STANDARD.decode(printed["data"].as_str().expect("a text")).expect("base64")
    }
}
