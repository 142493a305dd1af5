import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Lets a connector of Debezium follow a table, and writes its messages: one file a message, in their order.
 *
 * <p>Arguments: JDBC address, text of statements, folder, then settings of the connector as name=value. The statements
 * before the mark run before the connector starts, the others when it has read the table. A tombstone is an empty file.
 */
public final class DebeziumMessages {
  private static final int SECONDS = 120;
  private static final String MARK = "-- From the log:\n";
  /** The row of the table, two insertions, two updates, a deletion with its tombstone, and a new key: three messages. */
  private static final int MESSAGES = 10;

  private DebeziumMessages() {}

  public static void main(String[] arguments) throws Exception {
    String[] parts = arguments[1].split(MARK);
    Properties settings = new Properties();
    for (String each : List.of(arguments).subList(3, arguments.length)) {
      settings.setProperty(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
    }
    try (Connection connection = DriverManager.getConnection(arguments[0]);
        Statement statement = connection.createStatement()) {
      execute(statement, parts[0]);
      follow(settings, statement, parts[1], Path.of(arguments[2]));
    }
  }

  private static void execute(Statement statement, String text) throws SQLException {
    for (String each : text.split(";\n")) {
      statement.execute(each);
    }
  }

  private static void ended(boolean success, String message, Throwable error) {
    if (!success) {
      System.err.println(message + ": " + error);
      System.exit(1);
    }
  }

  private static void follow(Properties settings, Statement statement, String changes, Path folder) throws Exception {
    BlockingQueue<ChangeEvent<String, String>> found = new LinkedBlockingQueue<>();
    ExecutorService threads = Executors.newSingleThreadExecutor();
    try (DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(Json.class)
            .using(settings)
            .using(DebeziumMessages::ended)
            .notifying(found::add)
            .build()) {
      threads.execute(engine);
      for (int number = 0; number < MESSAGES; number++) {
        ChangeEvent<String, String> event = found.poll(SECONDS, TimeUnit.SECONDS);
        if (event == null) {
          throw new IllegalStateException("message " + number + " did not come");
        }
        String text = event.value() == null ? "" : event.value();
        Files.writeString(folder.resolve(String.format("%02d.json", number)), text);
        if (number == 0) {
          execute(statement, changes);
        }
      }
    }
    threads.shutdown();
  }
}
