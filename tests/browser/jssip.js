// Telephones of JsSIP. The page reports by console lines that begin with "phone:".
import JsSIP from "jssip";
import { play } from "./play.js";

class Phone {
    constructor({ user, password, domain, socket, hears }) {
        this.registrations = 0;
        this.ua = new JsSIP.UA({
            sockets: [new JsSIP.WebSocketInterface(socket)],
            uri: `sip:${user}@${domain}`,
            password,
            register_expires: 300,
            connection_recovery_min_interval: 1,
            connection_recovery_max_interval: 2,
        });
        this.ua.on("registered", () => hears("registered"));
        this.ua.on("registrationFailed", (event) => hears(`not registered: ${event.cause}`));
        this.ua.on("newRTCSession", ({ originator, session }) => {
            this.session = session;
            session.on("confirmed", () => hears("confirmed"));
            session.on("ended", () => hears("ended"));
            session.on("failed", (event) => hears(`call failed: ${event.cause}`));
            if (originator === "remote") {
                session.answer({ mediaConstraints: { audio: true, video: false } });
            }
        });
    }
    start() {
        this.ua.start();
    }
    call(target) {
        this.ua.call(target, { mediaConstraints: { audio: true, video: false } });
    }
    connection() {
        return this.session.connection;
    }
    hangUp() {
        this.session.terminate();
    }
}

play((settings) => new Phone(settings));
