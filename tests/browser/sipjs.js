// Telephones of SIP.js. The page reports by console lines that begin with "phone:".
import { Inviter, Registerer, RegistererState, SessionState, UserAgent } from "sip.js";
import { play } from "./play.js";

class Phone {
    constructor({ user, password, domain, socket, hears }) {
        this.hears = hears;
        this.ua = new UserAgent({
            uri: UserAgent.makeURI(`sip:${user}@${domain}`),
            authorizationUsername: user,
            authorizationPassword: password,
            transportOptions: { server: socket },
            logLevel: "warn",
            delegate: {
                onConnect: () => this.register(),
                onDisconnect: () => this.reconnect(),
                onInvite: (invitation) => {
                    this.watch(invitation);
                    // Established means that the 200 has left; the call stands when the ACK has come (RFC 3261 section 13.3.1.4).
                    invitation.delegate = { onAck: () => this.hears("confirmed") };
                    invitation.accept({ sessionDescriptionHandlerOptions: { constraints: { audio: true, video: false } } });
                },
            },
        });
        this.registerer = new Registerer(this.ua, { expires: 300 });
    }
    start() {
        this.ua.start();
    }
    register() {
        this.registerer.register({
            requestDelegate: {
                onAccept: () => this.hears("registered"),
                onReject: (response) => this.hears(`not registered: ${response.message.statusCode}`),
            },
        });
    }
    // As the library's own guide has it: who uses it reconnects.
    reconnect() {
        this.ua.reconnect().catch(() => setTimeout(() => this.reconnect(), 500));
    }
    watch(session) {
        this.session = session;
        session.stateChange.addListener((state) => {
            if (state === SessionState.Established && session instanceof Inviter) {
                this.hears("confirmed");
            }
            if (state === SessionState.Terminated) {
                this.hears("ended");
            }
        });
    }
    call(target) {
        const inviter = new Inviter(this.ua, UserAgent.makeURI(target), {
            sessionDescriptionHandlerOptions: { constraints: { audio: true, video: false } },
        });
        this.watch(inviter);
        inviter.invite({
            requestDelegate: { onReject: (response) => this.hears(`call failed: ${response.message.statusCode}`) },
        });
    }
    connection() {
        return this.session.sessionDescriptionHandler.peerConnection;
    }
    hangUp() {
        this.session.bye();
    }
}

play((settings) => new Phone(settings));
