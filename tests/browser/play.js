// What the telephones of a page do. The page's address says which of two plays, and with whom.
export function play(make) {
    const { domain, sockets } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const log = (line) => console.log(`phone: ${line}`);
    const [first, ...others] = sockets.split(" ");
    if (others.length === 0) {
        call(make, domain, first, log);
    } else {
        [first, ...others].forEach((socket, at) => register(make, domain, socket, (event) => log(`${at} ${event}`)));
    }
}

// A telephone at each of several listeners.
function register(make, domain, socket, hears) {
    make({ user: "alice", password: "secret-of-alice", domain, socket, hears }).start();
}

// Two telephones: both register; alice calls bob, both hear sound, bob hangs up. Alice calls again; when both have registered
// once more, since the test started the server again, bob hangs up.
function call(make, domain, socket, log) {
    const heard = { alice: [], bob: [] };
    const waiting = [];
    const phones = {};
    for (const user of ["alice", "bob"]) {
        const hears = (event) => {
            log(`${user} ${event}`);
            heard[user].push(event);
            waiting.splice(0).forEach((wake) => wake());
        };
        phones[user] = make({ user, password: `secret-of-${user}`, domain, socket, hears });
    }
    // Waits until a user heard this event once more than what was waited for before.
    const both = async (event) => {
        for (const user of ["alice", "bob"]) {
            while (!heard[user].includes(event)) {
                await new Promise((wake) => waiting.push(wake));
            }
            heard[user] = heard[user].slice(heard[user].indexOf(event) + 1);
        }
    };
    const sound = async (phone) => {
        for (;;) {
            const stats = [...(await phone.connection().getStats()).values()];
            if (stats.some((entry) => entry.type === "inbound-rtp" && entry.packetsReceived > 10)) {
                return;
            }
            await new Promise((wake) => setTimeout(wake, 50));
        }
    };
    const run = async () => {
        Object.values(phones).forEach((phone) => phone.start());
        await both("registered");
        phones.alice.call(`sip:bob@${domain}`);
        await both("confirmed");
        await sound(phones.bob);
        await sound(phones.alice);
        phones.bob.hangUp();
        await both("ended");
        log("first call done");
        phones.alice.call(`sip:bob@${domain}`);
        await both("confirmed");
        log("second call stands");
        await both("registered");
        phones.bob.hangUp();
        await both("ended");
        log("second call done");
    };
    run().catch((error) => log(`broke: ${error}`));
}
