import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Lets Debezium's PostgreSQL connector follow a table, and writes its messages: one file a message, in their order.
 *
 * <p>Arguments: port of the server, folder, then settings of the connector as name=value, and replica.identity of the
 * table. A tombstone is an empty file.
 */
public final class DebeziumMessages {
  private static final int SECONDS = 120;

  private static final String TABLE =
      "CREATE TABLE shop.goods (id int PRIMARY KEY, big bigint, small smallint, price numeric(10,2), free numeric,"
          + " ratio real, weight double precision, name text, label varchar(20), ok boolean, made timestamp,"
          + " made3 timestamp(3), seen timestamptz, day date, at time, data bytea, code uuid, doc json, docb jsonb,"
          + " zoned timetz, tags text[], span interval)";

  private static final String FIRST =
      "INSERT INTO shop.goods VALUES (1, 9007199254740993, -7, 12345678.90, 0.000001, 0.5, 1e300, 'lamp ü', 'a', true,"
          + " '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789012+02', '2024-02-29',"
          + " '23:59:59.999999', '\\x00ff10', '0190163d-8694-739b-aea5-966c26f8ad90', '{\"a\": [1, null]}',"
          + " '{\"b\": \"ü\"}', '23:59:59.5+02', '{a,NULL}', '1 day 00:00:01')";

  private static final String[] CHANGES = {
    "INSERT INTO shop.goods VALUES (2, -9223372036854775808, 32767, -0.01, -12345678901234567890.123, -1.25, -0.1, '',"
        + " 'b', false, '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999', '1900-01-01 00:00:00Z', '1900-01-01',"
        + " '00:00:00', '', '00000000-0000-0000-0000-000000000000', '[]', 'null',"
        + " '00:00:00Z', '{}', '-1 second')",
    "INSERT INTO shop.goods (id) VALUES (3)",
    "UPDATE shop.goods SET name = 'desk', price = 0, day = '9999-12-31' WHERE id = 1",
    "UPDATE shop.goods SET name = NULL, ok = NULL, made = NULL WHERE id = 1",
    "DELETE FROM shop.goods WHERE id = 2",
    "UPDATE shop.goods SET id = 4 WHERE id = 3",
  };

  /** The row of the snapshot, two insertions, two updates, a deletion with its tombstone, and a new key: three messages. */
  private static final int MESSAGES = 10;

  private DebeziumMessages() {}

  public static void main(String[] arguments) throws Exception {
    String port = arguments[0];
    Path folder = Path.of(arguments[1]);
    Properties settings = settings(port);
    for (String each : List.of(arguments).subList(2, arguments.length)) {
      settings.setProperty(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
    }
    String address = "jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=postgres";
    try (Connection connection = DriverManager.getConnection(address);
        Statement statement = connection.createStatement()) {
      statement.execute("DROP SCHEMA IF EXISTS shop CASCADE");
      statement.execute("CREATE SCHEMA shop");
      statement.execute(TABLE);
      // With DEFAULT the log has of the old row no more than its key.
      statement.execute("ALTER TABLE shop.goods REPLICA IDENTITY " + settings.remove("replica.identity"));
      statement.execute(FIRST);
      follow(settings, statement, folder);
    }
  }

  private static Properties settings(String port) {
    Properties settings = new Properties();
    settings.setProperty("name", "golden");
    settings.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
    settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
    settings.setProperty("plugin.name", "pgoutput");
    settings.setProperty("database.hostname", "127.0.0.1");
    settings.setProperty("database.port", port);
    settings.setProperty("database.user", "postgres");
    settings.setProperty("database.dbname", "postgres");
    settings.setProperty("slot.drop.on.stop", "true");
    settings.setProperty("topic.prefix", "golden");
    settings.setProperty("table.include.list", "shop.goods");
    settings.setProperty("replica.identity", "FULL");
    return settings;
  }

  private static void follow(Properties settings, Statement statement, Path folder) throws Exception {
    BlockingQueue<ChangeEvent<String, String>> found = new LinkedBlockingQueue<>();
    ExecutorService threads = Executors.newSingleThreadExecutor();
    try (DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(Json.class).using(settings).notifying(found::add).build()) {
      threads.execute(engine);
      for (int number = 0; number < MESSAGES; number++) {
        ChangeEvent<String, String> event = found.poll(SECONDS, TimeUnit.SECONDS);
        if (event == null) {
          throw new IllegalStateException("message " + number + " did not come");
        }
        String text = event.value() == null ? "" : event.value();
        Files.writeString(folder.resolve(String.format("%02d.json", number)), text);
        if (number == 0) {
          // The snapshot has been read: all that follows comes from the log.
          for (String change : CHANGES) {
            statement.execute(change);
          }
        }
      }
    }
    threads.shutdown();
  }
}
