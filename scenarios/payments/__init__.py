"""A shop: changes of tables, logins of a topic, alerts to three places."""
