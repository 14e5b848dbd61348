package headrace;

/** {@code java headrace.Main host:port [part-of-a-slug]}: tells all stories to that broker. */
public final class Main {
    public static void main(String[] arguments) {
        Teller teller = new Teller();
        int failed;
        try (Clients clients = new Clients(arguments[0])) {
            new Messages(clients).addTo(teller);
            new Transactions(clients).addTo(teller);
            new Reading(clients).addTo(teller);
            new Delays(clients).addTo(teller);
            new Views(clients).addTo(teller);
            new Groups(clients).addTo(teller);
            new NewProtocolGroups(clients).addTo(teller);
            new GroupAdministration(clients).addTo(teller);
            new Administration(clients).addTo(teller);
            new Streams(clients).addTo(teller);
            failed = teller.tellAll(arguments.length > 1 ? arguments[1] : "");
        }
        System.exit(failed == 0 ? 0 : 1);
    }
}
